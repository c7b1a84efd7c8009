// Callers, daemons and sandboxes that end in the middle of every call: it has an error in time, and nothing is left.
import assert from 'node:assert/strict'
import { setMaxListeners } from 'node:events'
import { mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { connect, ForkError, NotFound, RametError, Sandbox, SandboxGone, Unavailable, type Client, type Snapshot } from 'ramet'
import { eventually, World } from './harness.js'

/** Milliseconds in which a call that is cut off has its error, and after which sandboxes of nobody end. */
const within = 4_000
const ttl = 2_000
/** For sandboxes that are used meanwhile. */
const longer = 10_000
/** How long commands would run. Those of the first end with their caller. */
const [foreground, background] = ['98765', '87654']
const size = 8 << 20

interface Call {
  /** It has a sandbox of its own, as others would wait for it. */
  apart?: boolean
  /** It may succeed although the process of its sandbox was killed: by what is on disk, or a child that is about to be born. */
  outlives?: boolean
  /** Waits for more than the test does, or is short and made over and over. */
  on(sandbox: Sandbox, signal: AbortSignal): Promise<unknown>
}

const drained = async (of: AsyncIterable<unknown>): Promise<void> => {
  for await (const _ of of);
}
const removed = async (made: Iterable<Sandbox>): Promise<void> => {
  for (const one of made) {
    await one.destroy().catch((error: unknown) => {
      if (!(error instanceof NotFound)) throw error // its time may be over
    })
  }
}
const kept = async (sandbox: Sandbox, signal: AbortSignal): Promise<Snapshot> => (await sandbox.snapshots({ signal }))[0] ?? sandbox.snapshot({ signal })
const onChild = async (sandbox: Sandbox, signal: AbortSignal, act: (child: Sandbox) => Promise<unknown>): Promise<void> => {
  const [child] = (await sandbox.fork({ ttl: longer, signal })) as unknown as [Sandbox]
  await act(child)
  await removed([child])
}
const started = (sandbox: Sandbox, signal: AbortSignal) => sandbox.exec(['sleep', background], { background: true, signal })

const calls: Record<string, Call> = {
  exec: { on: (sandbox, signal) => sandbox.exec(['sleep', foreground], { signal }) },
  'exec, streaming': { on: (sandbox, signal) => drained(sandbox.exec(['sleep', foreground], { stream: true, signal })) },
  'exec, with input': { on: (sandbox, signal) => sandbox.exec(['sleep', foreground], { stdin: Buffer.alloc(4 << 20, 255), signal }) },
  runCode: { on: (sandbox, signal) => sandbox.runCode('import time; time.sleep(1000)', { language: 'python', context: 'one', signal }) },
  'runCode, streaming': {
    on: (sandbox, signal) => sandbox.runCode('import time; time.sleep(1000)', { language: 'python', context: 'two', onStdout: () => undefined, signal }),
  },
  wait: { on: async (sandbox, signal) => (await started(sandbox, signal)).wait({ signal }) },
  output: { on: async (sandbox, signal) => drained((await started(sandbox, signal)).output({ follow: true, signal })) },
  terminal: { on: async (sandbox, signal) => drained(await sandbox.pty({ command: ['sleep', background], signal })) },
  read: { on: (sandbox, signal) => sandbox.files.readBytes('/srv/large', { signal }) },
  'read, streaming': { on: (sandbox, signal) => drained(sandbox.files.readStream('/srv/large', { signal })) },
  write: { on: (sandbox, signal) => sandbox.files.write('/srv/written', Buffer.alloc(size), { signal }) },
  upload: { on: (sandbox, signal) => sandbox.files.upload(join(world.dir, 'files/up'), '/srv/up', { signal }) },
  download: { on: (sandbox, signal) => sandbox.files.download('/srv/large', join(world.dir, 'files/down'), { signal }) },
  watch: { on: (sandbox, signal) => drained(sandbox.files.watch('/etc', { signal })) },
  events: {
    outlives: true, // the failure is one of them
    async on(sandbox, signal) {
      for await (const { kind } of sandbox.events({ since: -1, follow: true, signal })) {
        if (kind === 'failed') throw new SandboxGone('an event told that it ended', { code: 'sandbox_died' })
      }
    },
  },
  logs: { on: (sandbox, signal) => drained(sandbox.logs({ follow: true, signal })) },
  'port, waited for': { on: (sandbox, signal) => sandbox.port(9).wait(600_000, { signal }) },
  'port, connected to': {
    async on(sandbox, signal) {
      const connection = await sandbox.port(8000).connect({ signal })
      signal.addEventListener('abort', () => connection.destroy(signal.reason as Error)) // the signal is for the call only
      await drained(connection)
    },
  },
  explore: { apart: true, on: (sandbox, signal) => sandbox.explore({ command: ['sleep', foreground], width: 2, maxTime: 1_000 }, { signal }) },
  fork: { apart: true, on: async (sandbox, signal) => removed(await sandbox.fork(2, { ttl, signal })) },
  snapshot: { apart: true, on: async (sandbox, signal) => (await sandbox.snapshot({ signal })).delete({ signal }) },
  restore: { apart: true, outlives: true, on: async (sandbox, signal) => removed(await (await kept(sandbox, signal)).restore({ ttl, signal })) },
  rollback: { apart: true, outlives: true, on: async (sandbox, signal) => sandbox.rollback(await kept(sandbox, signal), { signal }) },
  pause: { apart: true, on: async (sandbox, signal) => (await sandbox.pause({ signal })).resume({ signal }) },
  hibernate: { apart: true, outlives: true, on: async (sandbox, signal) => (await sandbox.hibernate({ signal })).wake({ signal }) },
  diff: { apart: true, on: (sandbox, signal) => onChild(sandbox, signal, (child) => sandbox.diff(child, { signal })) },
  merge: { apart: true, on: (sandbox, signal) => onChild(sandbox, signal, (child) => sandbox.merge(child, { paths: ['/srv'], signal })) },
  promote: { apart: true, outlives: true, on: (sandbox, signal) => onChild(sandbox, signal, (child) => sandbox.promote(child, { signal })) },
}

let world: World
let client: Client
let base: Sandbox
const own: Record<string, Sandbox> = {}
before(async () => {
  world = new World(process.env['RAMET_TEST_IMAGES'])
  await world.serve()
  client = connect({ host: `unix:${world.socket}` })
  base = await client.create()
  await base.runCode('import json')
  await base.files.write('/srv/large', Buffer.alloc(size))
  mkdirSync(join(world.dir, 'files/up'))
  writeFileSync(join(world.dir, 'files/up/large'), Buffer.alloc(size))
  await base.exec(['python3', '-c', "import socket, time\ns = socket.create_server(('', 8000))\ntime.sleep(1000)"], { background: true })
  await base.port(8000).wait()
  const apart = Object.keys(calls).filter((name) => calls[name]?.apart)
  const children = await base.fork(apart.length)
  apart.forEach((name, at) => (own[name] = children[at] as Sandbox))
})
after(async () => {
  await removed([...Object.values(own), base])
  assert.deepEqual(await client.list(), [])
  client.close()
  await world.end()
})

interface Cut {
  error: unknown
  late: number
}

/** Makes all calls over and over, has something happen once all are in the middle, and returns how each ended. */
async function cutOff(happens: (caller: AbortController) => void): Promise<Record<string, Cut>> {
  for (const one of Object.values(own)) {
    if ((await one.info()).state === 'paused') await one.resume().catch(() => undefined) // what was begun is finished
    await one.exec('true')
  }
  const caller = new AbortController()
  setMaxListeners(0, caller.signal)
  let at = Infinity
  const cuts: Record<string, Cut> = {}
  const overAndOver = async (name: string, call: Call): Promise<void> => {
    for (;;) {
      const began = performance.now()
      const error = await call.on(own[name] ?? base, caller.signal).then(() => undefined, (error: unknown) => error)
      const late = performance.now() - at
      if (error === undefined && !(call.outlives ? began > at : late > within)) continue
      cuts[name] = { error: late < 0 ? new Error(`too early: ${String(error)}`) : error, late }
      return
    }
  }
  const all = Object.entries(calls).map(([name, call]) => overAndOver(name, call))
  await eventually('the commands run', async () => (await base.processes.list()).filter(({ info }) => info.command.includes(foreground) || info.command.includes(background)).length >= 6)
  at = performance.now()
  happens(caller)
  await Promise.race([Promise.all(all), delay(60_000, undefined, { ref: false })])
  assert.deepEqual(Object.keys(calls).filter((name) => !(name in cuts)), [], 'these hang')
  return cuts
}

/** Checks that calls ended in time, with an error of which holds is true. */
function expect(cuts: Record<string, Cut>, holds: (error: Error, name: string) => boolean): void {
  const wrong = Object.entries(cuts).filter(([name, { error, late }]) => late > within || !holds(error as Error, name))
  assert.deepEqual(wrong.map(([name, { error, late }]) => `${name}: ${String(error)} after ${Math.round(late)} ms`), [])
}

/** Waits until there is nothing but what the tests have. */
async function nothingIsLeft(): Promise<void> {
  const known = [base, ...Object.values(own)].map((one) => one.id)
  await eventually('nothing is left', async () => {
    const all = await client.list()
    if (all.some((one) => !known.includes(one.id))) return false
    for (const one of all.filter((one) => one.lastInfo.state === 'running')) {
      if ((await one.processes.list()).some(({ info }) => info.command.includes(foreground))) return false
    }
    return true
  })
}

/** Kills the processes of all sandboxes: each leads its session, and its log lies in the world. Returns how many there were. */
function killSandboxes(): number {
  const pids = readdirSync('/proc').map(Number).filter((pid) => {
    try {
      const log = readlinkSync(`/proc/${pid}/fd/1`)
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
      const session = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[3])
      return log.startsWith(join(world.dir, 'run')) && !log.endsWith('/zygote.log') && session === pid
    } catch {
      return false // it is no process, has ended, or is another user's
    }
  })
  for (const pid of pids) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {
      // It ended with another.
    }
  }
  return pids.length
}

test('a caller that aborts has its reason at once, and leaves nothing', async () => {
  const reason = new Error('enough')
  expect(await cutOff((caller) => caller.abort(reason)), (error) => error === reason)
  await nothingIsLeft()
})

test('a daemon that is killed ends each call, and the next one finds the next daemon', async () => {
  expect(await cutOff(() => world.kill()), (error) => error instanceof Unavailable && /ended|broke off|ECONNREFUSED|answer/.test(error.message))
  await assert.rejects(base.info(), Unavailable)
  await world.serve()
  for (const process of await base.processes.list()) {
    if (process.info.command.includes(foreground)) await process.kill() // its caller might ask for it for 30 s
  }
  await nothingIsLeft()
})

test('a sandbox that is killed ends each call with the reason', async () => {
  const cuts = await cutOff(() => assert.ok(killSandboxes() > 0))
  expect(cuts, (error, name) => {
    if (error === undefined) return calls[name]?.outlives === true
    const [one] = error instanceof ForkError ? error.errors : [error]
    return one instanceof SandboxGone && one.message !== '' || (name === 'port, connected to' && error instanceof RametError)
  })
  await assert.rejects(base.exec('true'), SandboxGone)
  assert.equal((await base.info()).state, 'failed')
  await nothingIsLeft()
})
