// A sandbox by its names, over TLS: the only address is E2B_DOMAIN. The argument is the template.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

const s = await Sandbox.create(process.argv[2], { timeoutMs: 120_000, proxy: process.env.HTTPS_PROXY })
assert.equal((await s.commands.run('echo hi')).stdout, 'hi\n')
await s.files.write('/tmp/a', 'text')
assert.equal(await s.files.read('/tmp/a'), 'text')
await s.kill()
console.log('done')
