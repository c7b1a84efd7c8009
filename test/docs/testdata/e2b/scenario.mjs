// What users of E2B's JavaScript packages do, against a daemon of Ramet. The argument is the template.
import assert from 'node:assert/strict'
import { Sandbox } from '@e2b/code-interpreter'
import { Volume } from 'e2b'

const template = process.argv[2]
const until = async (holds) => {
  for (let i = 0; i < 600; i++) {
    if (await holds()) return
    await new Promise((r) => setTimeout(r, 50))
  }
  assert.fail('it does not happen')
}
const s = await Sandbox.create(template, { envs: { GIVEN: 'yes' }, metadata: { case: 'js' } })

assert.equal((await s.commands.run('echo $GIVEN')).stdout, 'yes\n')
await assert.rejects(s.commands.run('exit 2'), { name: 'CommandExitError', exitCode: 2 })
const lines = []
const h = await s.commands.run('echo begun; sleep 100', { background: true, onStdout: (d) => void lines.push(d) })
await until(() => lines.join('') === 'begun\n')
assert.ok(await h.kill())
await assert.rejects(h.wait(), { name: 'CommandExitError', exitCode: -1 })

await s.files.write('a.txt', 'hi')
assert.equal(await s.files.read('a.txt'), 'hi')
assert.deepEqual(Buffer.from(await s.files.read('a.txt', { format: 'bytes' })), Buffer.from('hi'))
await assert.rejects(s.files.read('none'), { name: 'FileNotFoundError' })
const seen = []
const home = (await s.files.getInfo('.')).path
const w = await s.files.watchDir(home, (e) => void seen.push(`${e.type} ${e.name}`))
await s.files.write('b.txt', 'x')
await until(() => seen.includes('create b.txt'))
await w.stop()
assert.equal(await (await fetch(await s.downloadUrl('a.txt', { useSignatureExpiration: 60 }))).text(), 'hi')

const p = await s.pty.create({ cols: 80, rows: 24, onData: () => {} })
await s.pty.resize(p.pid, { cols: 100, rows: 30 })
assert.ok(await s.pty.kill(p.pid))

const e = await s.runCode("import os\nprint(os.environ['GIVEN'])\n6 * 7")
assert.equal(e.text, '42')
assert.deepEqual(e.logs.stdout, ['yes\n'])
const kids = await s.fork({ count: 2 })
assert.deepEqual(await Promise.all(kids.map((k) => k.files.read('a.txt'))), ['hi', 'hi'])
await s.pause()
const again = await Sandbox.connect(s.sandboxId)
assert.equal((await again.runCode('1 + 1')).text, '2')
const listed = await Sandbox.list({ query: { metadata: { case: 'js' } } }).nextItems()
assert.equal(listed.length, 3)
for (const k of [...kids, s]) assert.ok(await k.kill())
assert.equal(await s.isRunning(), false)

const volume = await Volume.create(`shared-${process.pid}`)
await volume.writeFile('/in.txt', 'from outside')
const having = await Sandbox.create(template, { volumeMounts: { '/mnt/shared': volume } })
assert.equal((await having.commands.run('cat /mnt/shared/in.txt; echo inside > /mnt/shared/out.txt', { user: 'root' })).stdout, 'from outside')
assert.equal(await volume.readFile('/out.txt'), 'inside\n')
assert.deepEqual((await volume.list('/')).map((entry) => entry.name), ['in.txt', 'out.txt'])
await having.kill()
assert.ok(await Volume.destroy(volume.volumeId))
console.log('done')
