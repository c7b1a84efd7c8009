// Real daemons and sandboxes that end in the middle of calls, and daemons that are reached by TLS.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { connect, LimitExceeded, NotFound, PermissionDenied, Sandbox, SandboxGone, Unavailable, type Client } from 'ramet'
import { eventually, World } from './harness.js'

const images = process.env['RAMET_TEST_IMAGES']
let world: World
let client: Client
before(async () => {
  world = new World(images)
  world.env['RAMET_POOL'] = '0'
  await world.serve()
  client = connect({ host: `unix:${world.socket}` })
})
after(async () => {
  client.close()
  await world.end()
})

/** Starts a call of each kind that waits. */
function waitingCalls(sandbox: Sandbox): Record<string, Promise<unknown>> {
  const never = (async function* () {
    yield Buffer.from('x')
    await new Promise(() => undefined)
  })()
  const drained = async (of: AsyncIterable<unknown>): Promise<void> => {
    for await (const _ of of);
  }
  const calls: Record<string, Promise<unknown>> = {
    exec: sandbox.exec('sleep 100'),
    stream: drained(sandbox.exec('sleep 100', { stream: true })),
    stdin: sandbox.exec('cat', { stdin: never }),
    code: sandbox.runCode('import time; time.sleep(100)'),
    codeStream: sandbox.runCode('import time; time.sleep(100)', { language: 'python', context: 'other', onStdout: () => undefined }),
    wait: sandbox.exec('sleep 100', { background: true }).then((process) => process.wait()),
    output: sandbox.exec('sleep 100', { background: true }).then((process) => drained(process.output({ follow: true }))),
    attach: sandbox.pty({ command: ['sleep', '100'] }).then(drained),
    watch: drained(sandbox.files.watch('/srv')),
    port: sandbox.port(9).wait(100_000),
  }
  for (const call of Object.values(calls)) call.catch(() => undefined)
  return calls
}

/** Waits for the error of each call. */
async function errorsOf(calls: Record<string, Promise<unknown>>): Promise<Record<string, unknown>> {
  const errors: Record<string, unknown> = {}
  for (const [name, call] of Object.entries(calls)) {
    errors[name] = await Promise.race([
      call.then((value) => assert.fail(`${name} ended with ${JSON.stringify(value)}`), (error: unknown) => error),
      delay(60_000, undefined, { ref: false }).then(() => assert.fail(`${name} hangs`)),
    ])
  }
  return errors
}

test('a sandbox that is destroyed ends each call', async () => {
  const sandbox = await client.create()
  const calls = waitingCalls(sandbox)
  await eventually('the commands run', async () => (await sandbox.processes.list()).length >= 8)
  await sandbox.destroy()
  for (const [name, error] of Object.entries(await errorsOf(calls))) {
    assert.ok(error instanceof SandboxGone || error instanceof NotFound, `${name}: ${String(error)}`)
  }
})

test('a command goes on while its daemon is replaced', async () => {
  await using other = new World(images)
  let child = await other.serve()
  const own = connect({ host: `unix:${other.socket}` })
  const sandbox = await own.create()
  await sandbox.exec('mkfifo /srv/fifo', { check: true })
  const run = sandbox.exec('echo before; read x < /srv/fifo; echo after', { stream: true })
  let seen = ''
  for await (const { text } of run) {
    seen += text
    if (text !== 'before\n') continue
    const gone = once(child, 'exit')
    child.kill('SIGTERM')
    await gone // else its successor finds it, and leaves
    child = await other.serve()
    await sandbox.exec('echo > /srv/fifo')
  }
  assert.equal(seen, 'before\nafter\n')
  assert.equal((await run.result).ok, true)
  await sandbox.destroy()
  own.close()
})

test('a fork bomb of clients meets its quota', async () => {
  const most = 12
  world.ramet('tenant', 'give', 'bombs', 'python')
  world.ramet('tenant', 'quota', 'bombs', '--sandboxes', String(most))
  const { secret } = JSON.parse(world.ramet('token', 'create', '--scope', 'admin', '--tenant', 'bombs', '--json')) as { secret: string }
  const theirs = connect({ host: `unix:${world.socket}`, token: secret })
  const root = await theirs.create()
  const made: Sandbox[] = []
  const refused: unknown[] = []
  /** Forks a sandbox and has its children do the same, until it is refused. */
  const bomb = async (sandbox: Sandbox): Promise<void> => {
    const bombs: Promise<void>[] = []
    for (;;) {
      const children = await sandbox.fork(2).catch((error: unknown) => error)
      if (children instanceof Error) {
        refused.push(children)
        await Promise.all(bombs)
        return
      }
      made.push(...(children as Sandbox[]))
      bombs.push(...(children as Sandbox[]).map(bomb))
    }
  }
  await bomb(root)
  assert.ok(made.length + 1 <= most && made.length + 1 >= most - 1, `${made.length + 1} sandboxes`)
  assert.equal(refused.length, made.length + 1)
  for (const error of refused) {
    assert.ok(error instanceof LimitExceeded, String(error))
    assert.deepEqual([error.exceeded?.limit, error.exceeded?.of, error.exceeded?.max], ['sandboxes', 'tenant bombs', most])
  }
  await Promise.all([root, ...made].map((sandbox) => sandbox.destroy()))
  theirs.close()
})

test('the daemon of the user is started when it is needed, once', async () => {
  await using fresh = new World(images)
  const script = `
    import { Sandbox } from 'ramet'
    const [one, two] = await Promise.all([Sandbox.create(), Sandbox.create()])
    console.log((await one.exec('echo started')).stdout)
    await Promise.all([one.destroy(), two.destroy()])
  `
  const done = spawnSync(process.execPath, ['--input-type=module', '-e', script], { env: fresh.env, encoding: 'utf8' })
  assert.equal(done.stdout, 'started\n\n', done.stderr)
  assert.deepEqual(await fresh.end(), [])
})

test('without a program the error says what is missing', async () => {
  await using fresh = new World(undefined)
  const script = `import { Sandbox } from 'ramet'; await Sandbox.create().catch((error) => console.log(error.code, error.message, error.remedy))`
  const done = spawnSync(process.execPath, ['--input-type=module', '-e', script], { env: { ...fresh.env, RAMET_BIN: '', PATH: '/nowhere' }, encoding: 'utf8' })
  assert.match(done.stdout, /^unavailable no daemon runs, and there is no program ramet to start one: .* RAMET_HOST and RAMET_TOKEN\n$/, done.stderr)
})

test('a daemon elsewhere is reached by TLS with a token', async (t) => {
  await using remote = new World(images)
  const listening = await remote.listening()
  if (listening === undefined) return t.skip('there is no openssl to make a certificate with')
  await remote.serve(...listening.args)
  const token = remote.token()
  const ca = readFileSync(listening.ca, 'utf8')
  const { host } = listening
  const far = connect({ host, token, ca })
  const sandbox = await far.create({ image: 'python' })
  assert.equal((await sandbox.exec('tr a-z A-Z', { stdin: 'over tls' })).stdout, 'OVER TLS')
  assert.equal((await sandbox.exec('cat', { stdin: Buffer.from('over a WebSocket') })).stdout, 'over a WebSocket')
  assert.equal((await sandbox.runCode('6 * 7')).value, 42)
  await sandbox.files.write('/srv/index.html', 'page')
  const server = await sandbox.exec('cd /srv && exec python3 -m http.server 8000', { background: true })
  const at = sandbox.port(8000)
  await at.wait()
  assert.equal(await (await fetch(await at.url())).text(), 'page')
  await at.close()
  await server.kill()
  const [child] = await sandbox.fork()
  await child?.destroy()
  await sandbox.destroy()
  await assert.rejects(connect({ host, ca }).list(), (error: PermissionDenied) => error instanceof PermissionDenied && error.code === 'unauthenticated' && error.status === 401)
  await assert.rejects(connect({ host, ca, token: 'ramet_wrong' }).list(), PermissionDenied)
  await assert.rejects(connect({ host, token }).list(), (error: Unavailable) => error instanceof Unavailable && /RAMET_CA/.test(error.remedy ?? ''))
  await assert.rejects(connect({ host: host.replace('https', 'http'), token }).list(), /try https/)
  far.close()
})
