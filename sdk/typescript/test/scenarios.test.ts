// The scenarios that all SDKs share, against a daemon at its socket and over TLS with a token.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { CommandError, Conflict, connect, InvalidRequest, NotFound, Sandbox, SandboxGone, Timeout, type Client, type Result } from 'ramet'
import { eventually, repository } from './harness.js'

const names = (JSON.parse(readFileSync(join(repository, 'sdk/scenarios.json'), 'utf8')) as { name: string }[]).map((one) => one.name)

const scenarios: Record<string, (sandbox: Sandbox) => Promise<void>> = {
  async 'a command'(sandbox) {
    const result = await sandbox.exec('echo out; echo err >&2; exit 3')
    assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 3])
    const data = Buffer.from(Array.from({ length: 256_000 }, (_, at) => at % 256))
    const back: Uint8Array[] = []
    for await (const piece of sandbox.exec(['cat'], { stdin: data, stream: true })) back.push(piece.data)
    assert.ok(data.equals(Buffer.concat(back)))
  },

  async 'a command that is read while it runs'(sandbox) {
    const seen: string[] = []
    for await (const { text } of sandbox.exec('echo a; until [ -e /srv/go ]; do sleep 0.02; done; echo b', { stream: true })) {
      if (seen.push(text) === 1) await sandbox.files.write('/srv/go', '')
    }
    assert.deepEqual(seen, ['a\n', 'b\n'])
  },

  async 'a command with a time limit'(sandbox) {
    await assert.rejects(sandbox.exec('echo begun; sleep 1000', { timeout: 2000 }), (error: Timeout) => error instanceof Timeout && (error.result as Result).stdout === 'begun\n')
  },

  async 'a process in the background'(sandbox) {
    const process = await sandbox.exec('cat; echo end', { background: true, stdin: true })
    await process.write('hello\n', { end: true })
    assert.equal((await process.wait()).exitCode, 0)
    assert.equal((await process.logs()).stdout, 'hello\nend\n')
  },

  async 'a terminal'(sandbox) {
    await using pty = await sandbox.pty({ command: ['sh'], cols: 100, rows: 30 })
    await pty.write('echo $((6*7)); exit\n')
    let screen = ''
    for await (const { text } of pty) screen += text
    assert.match(screen, /42\r\n/)
  },

  async code(sandbox) {
    await sandbox.runCode('x = [1, 2]')
    const run = await sandbox.runCode("print('said'); x * 2")
    assert.deepEqual([run.stdout, run.value], ['said\n', [1, 2, 1, 2]])
    assert.equal((await sandbox.runCode('1/0')).error?.name, 'ZeroDivisionError')
  },

  async files(sandbox) {
    const data = Buffer.alloc(2 << 20, 'abcdefg')
    await sandbox.files.write('/srv/d/data', data)
    assert.ok(data.equals(await sandbox.files.readBytes('/srv/d/data')))
    const ifMatch = (await sandbox.files.write('/srv/d/text', 'one\n')).etag as string
    await sandbox.files.write('/srv/d/text', 'two\n', { ifMatch })
    await assert.rejects(sandbox.files.write('/srv/d/text', 'three\n', { ifMatch }), Conflict)
    assert.equal(await sandbox.files.read('/srv/d/text'), 'two\n')
    assert.deepEqual((await sandbox.files.list('/srv/d')).map((file) => file.path), ['/srv/d/data', '/srv/d/text'])
  },

  async 'a fork'(sandbox) {
    await sandbox.runCode('x = 1')
    await using children = await sandbox.fork(2)
    await children[0]?.runCode('x += 1')
    const values = await Promise.all([...children, sandbox].map(async (one) => (await one.runCode('x')).value))
    assert.deepEqual(values, [2, 1, 1])
    assert.deepEqual(children.map((child) => child.lastInfo.parent), [sandbox.id, sandbox.id])
  },

  async 'a difference and a merge'(sandbox) {
    await using children = await sandbox.fork(2)
    const [one, two] = children as unknown as [Sandbox, Sandbox]
    await one.files.write('/srv/a', 'a')
    await two.files.write('/srv/b', 'b')
    assert.deepEqual((await sandbox.diff(one, { paths: ['/srv'] })).changes.map((change) => change.path), ['/srv/a'])
    const { applied } = await sandbox.merge([one, two], { paths: ['/srv'] })
    assert.deepEqual(applied.map((change) => change.path).sort(), ['/srv/a', '/srv/b'])
    assert.equal((await sandbox.files.read('/srv/a')) + (await sandbox.files.read('/srv/b')), 'ab')
  },

  async 'a promotion'(sandbox) {
    const [child] = (await sandbox.fork()) as unknown as [Sandbox]
    await child.runCode('winner = True')
    await sandbox.promote(child)
    assert.equal((await sandbox.runCode('winner')).value, true)
    await assert.rejects(sandbox.client.sandbox(child.id), NotFound)
  },

  async 'a snapshot'(sandbox) {
    await sandbox.runCode('x = 1')
    const snapshot = await sandbox.snapshot()
    await sandbox.runCode('x = 2')
    {
      await using restored = await snapshot.restore(2)
      assert.deepEqual(await Promise.all(restored.map(async (one) => (await one.runCode('x')).value)), [1, 1])
    }
    await sandbox.rollback(snapshot)
    assert.equal((await sandbox.runCode('x')).value, 1)
    await snapshot.delete()
  },

  async rest(sandbox) {
    await sandbox.runCode('x = 1')
    await sandbox.hibernate()
    assert.equal((await sandbox.info()).state, 'hibernated')
    assert.equal((await sandbox.runCode('x')).value, 1)
    assert.equal((await sandbox.info()).state, 'running')
  },

  async 'a port'(sandbox) {
    await sandbox.exec('cd /srv && echo hello > page && exec python3 -m http.server 8000', { background: true })
    await using port = sandbox.port(8000)
    await port.wait()
    assert.equal(await (await fetch(`${await port.url()}/page`, { headers: { connection: 'close' } })).text(), 'hello\n')
  },

  async 'a network'(sandbox) {
    const allowed = async (host: string): Promise<boolean> => (await sandbox.network.test(host, 443)).allowed
    assert.equal(await allowed('api.example.org'), false)
    await sandbox.network.set(['api.example.org'])
    assert.deepEqual([await allowed('api.example.org'), await allowed('other.example.org')], [true, false])
  },

  async 'an exploration'(sandbox) {
    const variants = [1, 3, 2].map((n) => ({ env: { N: n } }))
    const begun = await sandbox.explore({ command: 'echo $N | tee /srv/n', variants, score: 'number', then: 'promote' }, { wait: false })
    const kinds: unknown[] = []
    for await (const event of begun) kinds.push(event.kind)
    assert.ok(kinds.includes('attempt'))
    const { winner } = await begun.wait()
    assert.deepEqual([winner?.index, winner?.score, await sandbox.files.read('/srv/n')], [1, 3, '3\n'])
    await begun.remove()
  },

  async events(sandbox) {
    await sandbox.pause()
    await sandbox.resume()
    const kinds: unknown[] = []
    for await (const event of sandbox.events()) kinds.push(event.kind)
    assert.ok(kinds.includes('paused') && kinds.indexOf('paused') < kinds.indexOf('resumed'), kinds.join())
  },

  async errors(sandbox) {
    await assert.rejects(sandbox.client.sandbox('nobody'), (error: NotFound) => error instanceof NotFound && error.status === 404)
    await assert.rejects(sandbox.update({ name: 'Not a name' }), (error: InvalidRequest) => error instanceof InvalidRequest && error.field === 'name')
    await assert.rejects(sandbox.exec('exit 3', { check: true }), (error: CommandError) => error instanceof CommandError && error.result.exitCode === 3)
  },

  async 'a sandbox that ends'(sandbox) {
    const waiting = sandbox.exec(['sleep', '8765'])
    waiting.catch(() => undefined) // it is awaited below
    await eventually('the command runs', async () => (await sandbox.processes.list({ all: true })).some((process) => process.info.command.includes('8765')))
    await (await sandbox.client.sandbox(sandbox.id)).destroy()
    await assert.rejects(waiting, SandboxGone)
  },
}

let base: Sandbox
before(async () => {
  base = await Sandbox.create({ image: 'python' })
  await base.runCode('import json')
})
after(async () => {
  await base.destroy()
})

test('no scenario is left out', () => {
  assert.deepEqual(Object.keys(scenarios), names)
})

const { RAMET_TEST_HOST: host, RAMET_TEST_TOKEN: token, RAMET_TEST_CA: ca } = process.env
const ways: [string, (() => Client) | undefined][] = [
  ['socket', connect],
  ['tls', host === undefined ? undefined : () => connect({ host, token, ca: readFileSync(ca as string, 'utf8') })],
]
for (const [way, open] of ways) {
  for (const name of names) {
    test(`${way}: ${name}`, { skip: open === undefined && 'there is no openssl to make a certificate with' }, async () => {
      const client = (open as () => Client)()
      try {
        await using children = await (await client.sandbox(base.id)).fork()
        await scenarios[name]?.(children[0] as Sandbox)
      } finally {
        client.close()
      }
    })
  }
}
