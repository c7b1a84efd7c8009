import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { CodeError, CommandError, InvalidRequest, NotFound, Sandbox, Timeout, type Execution, type Result } from 'ramet'
import { eventually } from './harness.js'

let base: Sandbox
before(async () => {
  base = await Sandbox.create({ env: { WHO: 'sandbox' } })
})
after(async () => {
  await base.destroy()
})

test('a command has output, exit code and signal', async () => {
  const { durationMs, ...result } = await base.exec('echo "$WHO $X"; pwd; echo err >&2; exit 3', { env: { X: 'y' }, cwd: '/srv' })
  assert.deepEqual(result, { stdout: 'sandbox y\n/srv\n', stderr: 'err\n', exitCode: 3, ok: false, signal: '' })
  assert.ok(durationMs > 0)
  const killed = await base.exec(['sh', '-c', 'kill -9 $$'])
  assert.deepEqual([killed.exitCode, killed.signal], [137, 'SIGKILL'])
  assert.equal((await base.exec(['id', '-u'], { user: 'nobody' })).stdout, '65534\n')
})

test('check makes a failure an error with the result', async () => {
  await assert.rejects(base.exec('echo out; echo why >&2; exit 2', { check: true }), (error: CommandError) => {
    assert.ok(error instanceof CommandError)
    assert.equal(error.result.exitCode, 2)
    assert.equal(error.result.stdout, 'out\n')
    return /exit code 2: why$/.test(error.message)
  })
  assert.equal((await base.exec('true', { check: true })).ok, true)
})

test('a command that cannot be started ends as in a shell, and in the background is an error', async () => {
  const missing = await base.exec(['no-such-program'])
  assert.deepEqual([missing.exitCode, missing.stderr], [127, 'ramet: no-such-program: command not found\n'])
  await assert.rejects(base.exec(['no-such-program'], { background: true }), (error: InvalidRequest) => error instanceof InvalidRequest && error.code === 'command_not_found')
  await assert.rejects(base.exec([]), InvalidRequest)
})

test('a time limit kills the process group, and the error has the output until then', async () => {
  for (const options of [{ timeout: 2_000 }, { timeout: 2_000, onStderr: () => undefined }]) {
    await assert.rejects(base.exec('echo begun; sleep 100 & sleep 100', options), (error: Timeout) => {
      assert.ok(error instanceof Timeout)
      const result = error.result as Result
      assert.equal(result.stdout, 'begun\n')
      return result.signal === 'SIGKILL'
    })
  }
  // The image has no ps.
  await eventually('none of the group is left', async () => !(await base.processes.list()).some(({ info }) => info.command?.includes('sleep 100')))
})

test('output is read while the command runs', async () => {
  await base.exec('mkfifo /srv/fifo', { check: true })
  const run = base.exec('echo one; read x < /srv/fifo; echo two >&2', { stream: true })
  const seen: string[] = []
  for await (const { stream, text } of run) {
    seen.push(`${stream} ${text}`)
    if (text === 'one\n') await base.exec('echo > /srv/fifo')
  }
  assert.deepEqual(seen, ['stdout one\n', 'stderr two\n'])
  assert.equal((await run.result).ok, true)
})

test('leaving the loop kills the command', async () => {
  for await (const { text } of base.exec('echo ready; exec sleep 1234', { stream: true })) {
    assert.equal(text, 'ready\n')
    break
  }
  await eventually('the command is gone', async () => !(await base.processes.list()).some((one) => one.info.command === 'sleep 1234'))
})

test('aborting a call kills the command and throws the reason', async () => {
  const abort = new AbortController()
  const run = base.exec(['sleep', '4321'], { signal: abort.signal })
  await eventually('the command runs', async () => (await base.processes.list()).some((one) => one.info.command === 'sleep 4321'))
  abort.abort(new Error('enough'))
  await assert.rejects(run, /^Error: enough$/)
  await eventually('the command is gone', async () => !(await base.processes.list()).some((one) => one.info.command === 'sleep 4321'))
})

test('standard input is a text, bytes or a stream', async () => {
  assert.equal((await base.exec('cat', { stdin: 'text' })).stdout, 'text')
  const bytes = await base.exec('od -An -tx1', { stdin: new Uint8Array([0, 255, 10]) })
  assert.equal(bytes.stdout.trim(), '00 ff 0a')
  const stream = await base.exec(['tr', 'a-z', 'A-Z'], { stdin: (async function* () { yield 'ab'; yield Buffer.from('cd') })() })
  assert.equal(stream.stdout, 'ABCD')
  await assert.rejects(
    base.exec('cat', { stdin: (async function* () { yield 'x'; throw new Error('no more') })() }),
    /^Error: no more$/,
  )
})

test('much goes through a command without being kept', async () => {
  const size = process.env['RAMET_TEST_BUILD'] === 'all' ? 2 ** 30 : 48 << 20
  async function* zeros() {
    const piece = Buffer.alloc(1 << 20)
    for (let sent = 0; sent < size; sent += piece.length) yield piece
  }
  const before = process.memoryUsage().arrayBuffers
  let most = 0
  let seen = 0
  for await (const { data } of base.exec('cat', { stdin: zeros(), stream: true })) {
    seen += data.length
    most = Math.max(most, process.memoryUsage().arrayBuffers - before)
  }
  assert.equal(seen, size)
  assert.ok(most < 40 << 20, `${most >> 20} MiB were kept`)
})

test('the result of a stream that nobody reads comes all the same', async () => {
  const run = base.exec('seq 100000; exit 4', { stream: true })
  assert.equal((await run.result).exitCode, 4)
})

test('functions get the output as it comes', async () => {
  const lines: string[] = []
  const result = await base.exec('echo a; echo b >&2', { onStdout: (text) => void lines.push(text) })
  assert.deepEqual(lines, ['a\n'])
  assert.deepEqual([result.stdout, result.stderr], ['', 'b\n'])
})

test('background processes are waited for, read, written to and signalled', async () => {
  const cat = await base.exec('cat; echo end', { background: true, stdin: true })
  await cat.write('first\n')
  await cat.write('second\n', { end: true })
  assert.equal((await cat.wait()).exitCode, 0)
  assert.deepEqual(await cat.logs(), { stdout: 'first\nsecond\nend\n', stderr: '' })
  const pieces = []
  for await (const { seq, text } of cat.output({ from: 6 })) pieces.push([seq, text])
  assert.equal(pieces.map(([, text]) => text).join(''), 'second\nend\n')
  assert.equal(pieces[0]?.[0], 6)
  await cat.remove()
  await assert.rejects(base.processes.get(cat.pid), NotFound)
  const sleep = await base.processes.start(['sleep', '100'])
  const followed = (async () => {
    for await (const _ of sleep.output({ follow: true }));
  })()
  await sleep.signal('TERM')
  await followed
  assert.equal((await sleep.wait()).signal, 'SIGTERM')
  assert.ok((await base.processes.list({ all: true })).some((one) => one.pid === sleep.pid && one.info.kept))
  const out = []
  for await (const { pid, text } of base.logs()) if (pid === cat.pid || pid === sleep.pid) out.push(text)
  assert.deepEqual(out, [])
})

test('a terminal is written to, read and resized', async () => {
  await using pty = await base.pty({ command: ['sh'], cols: 100, rows: 30, env: { PS1: '' } })
  await pty.write('stty size\n')
  let seen = ''
  const reading = (async () => {
    for await (const { text } of pty) {
      seen += text
      if (/30 100\r\n/.test(seen)) break
    }
  })()
  await reading
  await using again = await pty.process.attach({ from: -1 })
  await again.resize(90, 20)
  await again.write('stty size; exit 5\n')
  seen = ''
  for await (const { text } of again) seen += text
  assert.match(seen, /20 90\r\n/)
  assert.equal((await again.wait()).exitCode, 5)
})

test('code keeps its state, and has a value, results and errors', async () => {
  const first = await base.runCode('import sys\nx = {"a": [1, None, (True, "é")]}\nprint("out"); print("err", file=sys.stderr)\nx')
  assert.deepEqual(first.value, { a: [1, null, [true, 'é']] })
  assert.deepEqual([first.stdout, first.stderr, first.ok, first.error], ['out\n', 'err\n', true, null])
  assert.equal(first.results.length, 1)
  assert.equal(first.results[0]?.text, first.text)
  assert.equal((await base.runCode('x["a"][0] + 41')).value, 42)
  assert.equal((await base.runCode('object()')).value, null)
  const failed = await base.runCode('1/0')
  assert.equal(failed.error?.name, 'ZeroDivisionError')
  assert.match(failed.error?.traceback ?? '', /division by zero/)
  await assert.rejects(base.runCode('1/0', { check: true }), (error: CodeError) => error instanceof CodeError && error.execution.exitCode === 1)
  const shown = await base.runCode('class H:\n  def _repr_html_(self): return "<b>"\n  def _repr_png_(self): return b"\\x89PNG"\nH()')
  assert.equal(shown.results[0]?.html, '<b>')
  assert.equal(Buffer.from(shown.results[0]?.png ?? []).toString('latin1'), '\x89PNG')
})

test('code streams, is interrupted at its time, and runs in contexts', async () => {
  const got: string[] = []
  const run = await base.runCode('import time\nfor i in range(3): print(i, flush=True)\n[1, 2]', {
    onStdout: (text) => void got.push(text),
    onResult: (result) => void got.push(result.text ?? ''),
  })
  assert.equal(got.join(''), '0\n1\n2\n[1, 2]')
  assert.deepEqual([run.value, run.stdout], [[1, 2], ''])
  await assert.rejects(base.runCode('print("begun")\nwhile True: pass', { timeout: 2_000 }), (error: Timeout) => {
    assert.ok(error instanceof Timeout)
    return (error.result as Execution).stdout === 'begun\n' && (error.result as Execution).error?.name === 'KeyboardInterrupt'
  })
  await using context = await base.contexts.create({ name: 'other' })
  await context.runCode('y = 5')
  assert.equal((await base.runCode('y', { context })).value, 5)
  assert.equal((await base.runCode('y')).error?.name, 'NameError')
  const busy = context.runCode('while True: pass')
  await eventually('the cell runs', async () => (await base.contexts.get('other')).info.state === 'busy')
  assert.equal(await context.interrupt(), true)
  assert.equal((await busy).error?.name, 'KeyboardInterrupt')
  assert.equal((await context.restart()).info.restarts, 1)
  assert.equal((await context.runCode('y')).error?.name, 'NameError')
  assert.deepEqual((await base.contexts.list()).map((one) => one.name).sort(), ['other', 'python'])
  const shell = await base.runCode('cd /srv; pwd', { language: 'bash' })
  assert.equal(shell.stdout, '/srv\n')
})
