import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { generateText, stepCountIs, tool, jsonSchema, type Experimental_SandboxSession } from 'ai'
import { MockLanguageModelV4 } from 'ai/test'
import { InvalidRequest } from 'ramet'
import { RametSession } from 'ramet/ai-sdk'
import { eventually } from '../harness.js'

let session: RametSession
before(async () => {
  session = await RametSession.create({ cwd: '/work', env: { WHO: 'session' } })
})
after(async () => {
  await session.close()
})

async function textOf(stream: ReadableStream<Uint8Array> | null | undefined): Promise<string> {
  let all = ''
  const decoder = new TextDecoder()
  for await (const part of (stream ?? []) as unknown as AsyncIterable<Uint8Array>) all += decoder.decode(part, { stream: true })
  return all
}

const commands = async (): Promise<string[]> => (await session.sandbox.processes.list()).map(({ info }) => String(info.command))

test('commands start in the base directory, and relative paths begin there', async () => {
  const { run }: Experimental_SandboxSession = session
  assert.deepEqual(await run({ command: 'pwd; echo "$WHO $X"; echo err >&2; exit 3', env: { X: 'y' } }), { exitCode: 3, stdout: '/work\nsession y\n', stderr: 'err\n' })
  await session.writeTextFile({ path: 'sub/a.txt', content: 'one\ntwo\nthree\n' })
  assert.equal((await run({ command: 'cat a.txt', workingDirectory: 'sub' })).stdout, 'one\ntwo\nthree\n')
  assert.equal((await run({ command: 'pwd', workingDirectory: '/srv' })).stdout, '/srv\n')
  assert.match(session.description, /\/work/)
  assert.throws(() => new RametSession(session.sandbox, { cwd: 'relative' }), InvalidRequest)
})

test('files are read whole, by lines and as streams; what is not there is null', async () => {
  await session.writeTextFile({ path: 'lines', content: 'one\ntwo\nthree\n' })
  assert.equal(await session.readTextFile({ path: 'lines', startLine: 2, endLine: 2 }), 'two')
  assert.equal(await session.readTextFile({ path: 'lines', startLine: 2, endLine: 99 }), 'two\nthree\n')
  await session.writeTextFile({ path: 'latin', content: 'ü', encoding: 'latin1' })
  assert.deepEqual(await session.readBinaryFile({ path: '/work/latin' }), Buffer.from([0xfc]))
  assert.equal(await session.readTextFile({ path: 'latin', encoding: 'latin1' }), 'ü')
  const big = new Uint8Array(3 << 20).fill(7)
  await session.writeFile({ path: 'big', content: new Blob([big]).stream() })
  let read = 0
  for await (const part of (await session.readFile({ path: 'big' })) as unknown as AsyncIterable<Uint8Array>) read += part.length
  assert.equal(read, big.length)
  await (await session.readFile({ path: 'big' }))?.cancel()
  const none = { path: 'no' }
  for (const find of [session.readFile, session.readBinaryFile, session.readTextFile, session.stat, session.listDirectory]) assert.equal(await find(none), null)
  for (const act of [() => session.writeTextFile({ path: '/work', content: '' }), () => session.listDirectory({ path: 'lines' }), () => session.deleteFile({ path: '/work' })]) {
    await assert.rejects(act)
  }
})

test('directories are listed, and links are followed by stat alone', async () => {
  await session.run({ command: 'mkdir -p list/dir && cd list && echo hi > file && ln -s file link && mkfifo fifo' })
  const entries = await session.listDirectory({ path: 'list' })
  const types = Object.fromEntries((entries ?? []).map(({ name, type }) => [name, type]))
  assert.deepEqual(types, { dir: 'directory', fifo: 'other', file: 'file', link: 'symlink' })
  assert.deepEqual(await session.stat({ path: 'list/link' }), { type: 'file', size: 3 })
  assert.equal((await session.stat({ path: 'list' }))?.type, 'directory')
  assert.equal(await session.deleteFile({ path: 'list/link' }), true)
  assert.equal(await session.deleteFile({ path: 'list/link' }), false)
  assert.deepEqual(await session.stat({ path: 'list/file' }), { type: 'file', size: 3 })
})

test('a process is written to, read from, waited for and killed', async () => {
  const cat = await session.spawn({ command: 'cat; echo end >&2; exit 5', stdin: true })
  const writer = cat.stdin.getWriter()
  await writer.write(new TextEncoder().encode('to the process'))
  await writer.close()
  assert.deepEqual(await cat.wait(), { exitCode: 5 })
  assert.equal(await textOf(cat.stdout), 'to the process')
  assert.equal(await textOf(cat.stderr), 'end\n')
  await cat.kill() // it has ended

  const sleep = await session.spawn({ command: 'echo begun; sleep 1234' })
  const reader = sleep.stdout.getReader()
  assert.equal(new TextDecoder().decode((await reader.read()).value), 'begun\n')
  await reader.cancel()
  await sleep.kill()
  assert.deepEqual(await sleep.wait(), { exitCode: 137 })
})

test('what is aborted leaves no process', async () => {
  const stop = new AbortController()
  const running = session.run({ command: 'sleep 2345 & sleep 2345', abortSignal: stop.signal })
  const spawned = await session.spawn({ command: 'sleep 3456 & sleep 3456', abortSignal: stop.signal })
  const waited = assert.rejects(async () => spawned.wait(), /no more/)
  await eventually('both run', async () => (await commands()).filter((command) => /sleep (2345|3456)/.test(command)).length >= 4)
  stop.abort(new Error('no more'))
  await assert.rejects(running, /no more/)
  await waited
  await eventually('both are gone', async () => !(await commands()).some((command) => /sleep (2345|3456)/.test(command)))
  const late = await new RametSession(session.sandbox, { timeout: 300 }).run({ command: 'sleep 4567' })
  assert.equal(late.exitCode, 124)
  assert.match(late.stderr, /killed after 300 ms/)
})

test('long outputs are cut in the middle', async () => {
  const { stdout } = await new RametSession(session.sandbox, { maxOutput: 400 }).run({ command: 'seq 10000' })
  assert.ok(stdout.length < 600 && stdout.startsWith('1\n2\n') && stdout.endsWith('\n10000\n'), stdout)
})

test('a model of the AI SDK works in a session, and in its forks', async () => {
  const model = () => {
    const usage = { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } }
    const answers = [
      { content: [{ type: 'tool-call' as const, toolCallId: '1', toolName: 'shell', input: '{"command":"echo seen >> log; cat log"}' }], finishReason: { unified: 'tool-calls' as const, raw: undefined } },
      { content: [{ type: 'text' as const, text: 'done' }], finishReason: { unified: 'stop' as const, raw: undefined } },
    ]
    let at = 0
    return new MockLanguageModelV4({ doGenerate: async () => ({ ...answers[at++]!, usage, warnings: [] }) })
  }
  const shell = tool({
    description: 'Runs a command.',
    inputSchema: jsonSchema<{ command: string }>({ type: 'object', properties: { command: { type: 'string' } }, required: ['command'] }),
    execute: async ({ command }, { experimental_sandbox: sandbox, abortSignal }) => (await sandbox!.run({ command, ...(abortSignal && { abortSignal }) })).stdout,
  })
  const solve = async (experimental_sandbox: RametSession) => {
    const { steps, text } = await generateText({ model: model(), tools: { shell }, prompt: 'go', experimental_sandbox, stopWhen: stepCountIs(3) })
    return [steps[0]?.toolResults[0]?.output, text]
  }
  assert.deepEqual(await solve(session), ['seen\n', 'done'])
  await using forks = await session.fork(2)
  assert.deepEqual(await Promise.all(forks.map(solve)), [['seen\nseen\n', 'done'], ['seen\nseen\n', 'done']])
  assert.equal(await session.readTextFile({ path: 'log' }), 'seen\n')
  await session.promote(forks[1]!)
  assert.equal(await session.readTextFile({ path: 'log' }), 'seen\nseen\n')
})
