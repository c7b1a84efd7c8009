import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { after, before, test } from 'node:test'
import { fakeModel } from '@langchain/core/testing'
import { AIMessage } from '@langchain/core/messages'
import { createDeepAgent, isSandboxBackend } from 'deepagents'
import { InvalidRequest, Sandbox, SandboxGone } from 'ramet'
import { RametSandbox } from 'ramet/deepagents'
import { eventually, packageDir } from '../harness.js'

const text = (bytes: Uint8Array | null | undefined): string => new TextDecoder().decode(bytes ?? undefined)
const bytes = (of: string): Uint8Array => new TextEncoder().encode(of)

let backend: RametSandbox
before(async () => {
  backend = await RametSandbox.create({ initialFiles: { '/srv/app/main.py': 'print(1)\n' }, env: { WHO: 'agent' }, cwd: '/srv', timeout: 60_000 })
})
after(async () => {
  await backend.close()
})

test('a sandbox is a backend of deepagents with all of its operations', async () => {
  assert.ok(isSandboxBackend(backend))
  assert.equal(backend.isRunning, true)
  assert.deepEqual(await backend.execute('echo "$WHO"; pwd; echo err >&2; exit 3'), { output: 'agent\n/srv\nerr\n', exitCode: 3, truncated: false })
  assert.match(String((await backend.read('/srv/app/main.py')).content), /print\(1\)/)
  assert.equal((await backend.edit('/srv/app/main.py', '1', '2')).occurrences, 1)
  assert.equal((await backend.execute('python3 app/main.py')).output, '2\n')
  assert.deepEqual((await backend.ls('/srv')).files?.map(({ path }) => path), ['/srv/app/'])
  assert.deepEqual((await backend.grep('print', '/srv')).matches, [{ path: '/srv/app/main.py', line: 1, text: 'print(2)' }])
  assert.deepEqual((await backend.glob('**/*.py', '/srv')).files?.map(({ path }) => path), ['app/main.py'])
  await backend.write('/srv/new dir/über.txt', 'x')
  assert.equal((await backend.delete('/srv/new dir')).error, undefined)
  assert.match(String((await backend.readRaw('/srv/new dir/über.txt')).error), /not found/)
})

test('a file that fails has the word of the protocol, and keeps no other from its way', async () => {
  await backend.execute('install -d -o root -m 700 /root/own && mkfifo /srv/fifo')
  const up = await backend.uploadFiles([['/srv/a', bytes('a')], ['/etc', bytes('x')], ['relative', bytes('x')], ['/srv/fifo', bytes('x')], ['/srv/deep/b', bytes('b')]])
  assert.deepEqual(up.map(({ error }) => error), [null, 'is_directory', 'invalid_path', 'invalid_path', null])
  const down = await backend.downloadFiles(['/srv/a', '/srv/none', '/etc', '/srv/a/b', '/srv/deep/b'])
  assert.deepEqual(down.map(({ path, error }) => [path, error]), [
    ['/srv/a', null], ['/srv/none', 'file_not_found'], ['/etc', 'is_directory'], ['/srv/a/b', 'invalid_path'], ['/srv/deep/b', null],
  ])
  assert.deepEqual([text(down[0]?.content), down[1]?.content, text(down[4]?.content)], ['a', null, 'b'])
  const nobody = new RametSandbox(backend.sandbox, { user: 'nobody' })
  assert.deepEqual((await nobody.uploadFiles([['/root/own/x', bytes('x')]])).map(({ error }) => error), ['permission_denied'])
  await nobody.execute('true')
})

test('forks go on from the running sandbox, and the best one is promoted', async () => {
  await backend.sandbox.runCode('score = 1')
  await using tries = await backend.fork(3)
  const outputs = await Promise.all(tries.map(async (one, at) => {
    await one.write('/srv/try', String(at))
    await one.sandbox.runCode(`score += ${at}`)
    return (await one.execute('cat /srv/try; echo " $WHO"; pwd')).output
  }))
  assert.deepEqual(outputs, ['0 agent\n/srv\n', '1 agent\n/srv\n', '2 agent\n/srv\n'])
  assert.equal((await backend.downloadFiles(['/srv/try']))[0]?.error, 'file_not_found')
  await backend.promote(tries[2]!)
  assert.equal(tries[2]!.isRunning, false)
  assert.equal((await backend.execute('cat /srv/try')).output, '2')
  assert.equal((await backend.sandbox.runCode('score')).value, 3)
  await assert.rejects(tries[2]!.execute('true'), SandboxGone)
})

test('a command whose time is over leaves no process, and long outputs are cut', async () => {
  const late = await new RametSandbox(backend.sandbox, { timeout: 500 }).execute('sleep 4321 & sleep 4321')
  assert.equal(late.exitCode, 124)
  assert.match(late.output, /\[the command and its process group were killed after 500 ms\]\n$/)
  await eventually('both are gone', async () => !(await backend.sandbox.processes.list()).some(({ info }) => info.command?.includes('4321')))
  const long = await new RametSandbox(backend.sandbox, { maxOutput: 1000 }).execute('seq 100000')
  assert.equal(long.truncated, true)
  assert.ok(long.output.length < 1200, `${long.output.length}`)
  assert.match(long.output, /^1\n2\n[^]*\d\n\[\d+ characters are left out: [^]*\]\n\d+\n[^]*\n100000\n$/)
  assert.throws(() => new RametSandbox(backend.sandbox, { maxOutput: 1 }), InvalidRequest)
})

test('an agent of deepagents works in the sandbox', async () => {
  const model = fakeModel()
    .respondWithTools([{ name: 'write_file', args: { file_path: '/srv/job.py', content: 'print(6 * 7)\n' } }])
    .respondWithTools([{ name: 'execute', args: { command: 'python3 /srv/job.py' } }])
    .respond((messages) => new AIMessage(`it is ${messages.at(-1)?.text.trim()}`))
  const agent = createDeepAgent({ model, backend })
  const { messages } = await agent.invoke({ messages: [{ role: 'user', content: 'what is it?' }] })
  assert.match(String(messages.at(-1)?.text), /^it is 42\b/)
  assert.equal((await backend.execute('cat /srv/job.py')).output, 'print(6 * 7)\n')
})

test('the sandboxes of a killed program end by themselves', async () => {
  const code = `
    import { RametSandbox } from 'ramet/deepagents'
    const backend = await RametSandbox.create()
    const [fork] = await backend.fork(1)
    console.log(backend.id, fork.id)
    setInterval(() => {}, 1000)
  `
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], { cwd: packageDir, stdio: ['ignore', 'pipe', 'inherit'] })
  const [printed] = (await once(child.stdout, 'data')) as [Buffer]
  child.kill('SIGKILL')
  const ids = printed.toString().trim().split(' ')
  assert.equal(ids.length, 2)
  for (const id of ids) {
    const left = await Sandbox.connect(id)
    assert.equal(left.lastInfo.metadata?.['owner'], 'deepagents')
    assert.ok(Date.parse(String(left.lastInfo.lifecycle?.expiresAt)) < Date.now() + 61_000, JSON.stringify(left.lastInfo.lifecycle))
    await left.destroy()
  }
})
