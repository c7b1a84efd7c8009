import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { AIMessage, ToolMessage, type BaseMessage } from '@langchain/core/messages'
import { fakeModel } from '@langchain/core/testing'
import { createAgent } from 'langchain'
import { InvalidRequest, NotFound, Sandbox, SandboxGone } from 'ramet'
import { RametToolkit } from 'ramet/langchain'
import { eventually } from '../harness.js'

let toolkit: RametToolkit
before(async () => {
  toolkit = await RametToolkit.create({ timeout: 60_000, maxForks: 3, cwd: '/srv' })
})
after(async () => {
  await toolkit.close()
})

async function call(of: RametToolkit, name: string, input: Record<string, unknown>, config = {}): Promise<string> {
  const found = of.tools.find((one) => one.name === name)
  assert.ok(found, name)
  return String(await found.invoke(input, config))
}

test('commands, code and files', async () => {
  assert.equal(await call(toolkit, 'ramet_exec', { command: 'pwd; echo err >&2; exit 3' }), 'exit code 3\n/srv\nerr\n')
  assert.equal(await call(toolkit, 'ramet_run_code', { code: 'x = 20\nprint("hi")\nx + 1' }), 'hi\n21\n')
  assert.equal(await call(toolkit, 'ramet_run_code', { code: 'y = x' }), 'done, without output')
  assert.match(await call(toolkit, 'ramet_run_code', { code: 'x / 0' }), /ZeroDivisionError: division by zero/)
  assert.equal(await call(toolkit, 'ramet_write_file', { path: '/srv/deep/a', content: 'text' }), 'wrote 4 bytes to /srv/deep/a')
  assert.equal(await call(toolkit, 'ramet_read_file', { path: '/srv/deep/a' }), 'text')
  assert.match(await call(toolkit, 'ramet_read_file', { path: '/srv/none' }), /^not_found: "\/srv\/none": no such file or directory/)
})

test('a model works in children of its own, and reaches no other sandbox', async () => {
  await using stranger = await Sandbox.create('python')
  assert.match(await call(toolkit, 'ramet_exec', { command: 'id', sandbox: stranger.id }), /^invalid_argument: sandbox: ".*" is no child of this sandbox; there are: none/)
  const ids = (await call(toolkit, 'ramet_fork', { count: 3 })).split('\n')
  assert.equal(ids.length, 3)
  assert.match(await call(toolkit, 'ramet_fork', {}), /^limit_exceeded: there are 3 children, and there may be 3 \(promote one/)
  assert.equal(await call(toolkit, 'ramet_run_code', { code: 'x += 1; x', sandbox: ids[1] }), '21\n')
  await call(toolkit, 'ramet_write_file', { path: '/srv/new', content: 'of a child\n', sandbox: ids[1] })
  assert.match(await call(toolkit, 'ramet_compare', { sandbox: ids[1] }), /added \/srv\/new\n[^]*\+of a child/)
  assert.match(await call(toolkit, 'ramet_promote', { sandbox: toolkit.sandbox.id }), /^invalid_argument: sandbox: this is the main sandbox/)
  assert.match(await call(toolkit, 'ramet_promote', { sandbox: ids[1] }), /has the state/)
  assert.equal(await call(toolkit, 'ramet_exec', { command: 'cat new' }), 'exit code 0\nof a child\n')
  assert.equal(await call(toolkit, 'ramet_run_code', { code: 'x' }), '21\n')
  assert.match(await call(toolkit, 'ramet_destroy', { sandbox: ids[0] }), /is gone/)
  // The third one ends with the toolkit.
  assert.equal((await toolkit.sandbox.tree())?.children?.length, 1)
})

test('a child that is gone is forgotten, and a main sandbox that is gone is an error', async () => {
  await using base = await Sandbox.create('python')
  const own = new RametToolkit(base, { maxForks: 1 })
  const child = await call(own, 'ramet_fork', {})
  await (await Sandbox.connect(child)).destroy()
  assert.match(await call(own, 'ramet_exec', { command: 'id', sandbox: child }), /^not_found: /)
  const other = await call(own, 'ramet_fork', {})
  assert.notEqual(other, child)
  await base.destroy()
  await assert.rejects(call(own, 'ramet_exec', { command: 'id' }), SandboxGone)
  await own.close()
  await assert.rejects(Sandbox.connect(other), NotFound)
})

test('forks of a toolkit are for several agents, and each is as if it were alone', async () => {
  await using forks = await toolkit.fork(2)
  const outputs = await Promise.all(forks.map((one, at) => call(one, 'ramet_exec', { command: `echo ${at} > who; cat who` })))
  assert.deepEqual(outputs, ['exit code 0\n0\n', 'exit code 0\n1\n'])
  await call(forks[0]!, 'ramet_fork', {})
  await toolkit.promote(forks[1]!)
  assert.equal(await call(toolkit, 'ramet_exec', { command: 'cat who' }), 'exit code 0\n1\n')
})

test('what is cancelled or late leaves no process, and long outputs are cut', async () => {
  const short = new RametToolkit(toolkit.sandbox, { timeout: 300, maxOutput: 400, maxForks: 0 })
  assert.deepEqual(short.tools.map(({ name }) => name), ['ramet_exec', 'ramet_run_code', 'ramet_read_file', 'ramet_write_file'])
  assert.match(await call(short, 'ramet_exec', { command: 'sleep 4321' }), /^exit code 124 \(the command and its process group were killed after 300 ms\)\n/)
  await assert.rejects(call(toolkit, 'ramet_exec', { command: 'sleep 4321' }, { signal: AbortSignal.timeout(300) }))
  await eventually('both are gone', async () => !(await toolkit.sandbox.processes.list()).some(({ info }) => info.command?.includes('4321')))
  const cut = new RametToolkit(toolkit.sandbox, { maxOutput: 400 })
  for (const answer of [await call(cut, 'ramet_exec', { command: 'seq 10000' }), await call(cut, 'ramet_run_code', { code: 'for i in range(10001): print(i)' })]) {
    assert.ok(answer.length < 600 && answer.endsWith('\n10000\n') && answer.includes(' characters are left out: '), answer)
  }
  await assert.rejects(RametToolkit.create({ maxForks: 101, metadata: { trial: 'refused' } }), InvalidRequest)
  assert.deepEqual(await Sandbox.list({ metadata: { trial: 'refused' } }), [])
})

test('an agent of LangChain tries two ways and keeps one', async () => {
  const last = (messages: BaseMessage[]): string[] => String((messages.findLast((message) => ToolMessage.isInstance(message)) as ToolMessage).text).split('\n')
  let ids: string[] = []
  const use = (name: string, args: Record<string, unknown>): AIMessage => new AIMessage({ content: '', tool_calls: [{ name, args, id: `${name}-${Math.random()}`, type: 'tool_call' }] })
  const model = fakeModel()
    .respondWithTools([{ name: 'ramet_fork', args: { count: 2 } }])
    .respond((messages) => {
      ids = last(messages)
      return use('ramet_exec', { command: 'echo 41 > answer', sandbox: ids[0] })
    })
    .respond(() => use('ramet_exec', { command: 'echo 42 > answer', sandbox: ids[1] }))
    .respond(() => use('ramet_promote', { sandbox: ids[1] }))
    .respond(() => use('ramet_destroy', { sandbox: ids[0] }))
    .respond(new AIMessage('the second one'))
  await using own = await RametToolkit.create({ cwd: '/srv' })
  const agent = createAgent({ model, tools: own.tools })
  const { messages } = await agent.invoke({ messages: [{ role: 'user', content: 'find the answer' }] })
  assert.equal(messages.at(-1)?.text, 'the second one')
  assert.equal(await call(own, 'ramet_exec', { command: 'cat answer' }), 'exit code 0\n42\n')
})
