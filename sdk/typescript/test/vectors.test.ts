// Replays the vectors that all SDKs share (sdk/vectors/README.md).
import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { after, test } from 'node:test'
import * as ramet from 'ramet'
import { Client, Process, Sandbox, type Execution, type Output, type Result } from 'ramet'
import { repository } from './harness.js'

type Doc = Record<string, unknown>

interface Exchange {
  request: { method: string; path: string; query?: Record<string, string>; body?: unknown; headers?: Record<string, string>; same?: string[] }
  response: (string | { base64: string })[]
  end: 'keep' | 'close' | 'reset' | 'hang'
}

interface Case {
  name: string
  call: { operation: string; arguments: Doc }
  exchanges: Exchange[]
  probe?: 'ok' | 'hang' | 'gone' | 'failed'
  expect: { result?: unknown; error?: Doc }
}

const id = 'sbx_aaaaaaaaaaaaaaaa'

/** Plays the exchanges of a case at a socket. */
class Stub {
  readonly faults: string[] = []
  private before: Record<string, string> = {}
  private readonly open = new Set<Socket>()
  private readonly server: Server

  constructor(
    path: string,
    private readonly exchanges: Exchange[],
    private readonly probe: Case['probe'],
  ) {
    this.server = createServer((socket) => {
      this.open.add(socket)
      socket.on('error', () => undefined)
      let received = Buffer.alloc(0)
      socket.on('data', (part: Buffer) => {
        received = Buffer.concat([received, part])
        for (let next = parse(received); next; next = parse(received)) {
          received = received.subarray(next.length)
          this.answer(socket, next)
        }
      })
    }).listen(path)
  }

  async close(): Promise<void> {
    for (const socket of this.open) socket.destroy()
    await new Promise<void>((resolve) => this.server.close(() => resolve()))
    if (this.exchanges.length > 0) this.faults.push(`${this.exchanges.length} exchanges were left`)
  }

  private answer(socket: Socket, { method, url, headers, body }: Parsed): void {
    const next = this.exchanges[0]
    const isNext = next?.request.method === method && next.request.path === url.pathname
    if (method === 'GET' && !isNext && (url.pathname === '/healthz' || url.pathname === `/v1/sandboxes/${id}`)) return this.answerProbe(socket, url.pathname)
    if (!next) {
      this.faults.push(`a request more: ${method} ${url.pathname}`)
      return void socket.destroy()
    }
    this.exchanges.shift()
    this.compare(next.request, { method, url, headers, body, length: 0 })
    this.before = headers
    for (const piece of next.response) socket.write(typeof piece === 'string' ? piece : Buffer.from(piece.base64, 'base64'))
    if (next.end === 'close' || next.end === 'reset') socket.end(() => socket.destroy()) // Unix sockets are not reset
  }

  private answerProbe(socket: Socket, path: string): void {
    if (this.probe === 'hang') return
    let [status, type, doc]: [string, string, Doc] = ['200 OK', 'application/json', { status: 'ok', version: 'v', pid: 1 }]
    if (path !== '/healthz') {
      doc = { id, state: 'running' }
      if (this.probe === 'failed') doc = { id, state: 'failed', reason: 'init exited' }
      if (this.probe === 'gone') [status, type, doc] = ['404 Not Found', 'application/problem+json', { code: 'not_found', detail: `no sandbox "${id}"` }]
    }
    const text = JSON.stringify(doc)
    socket.write(`HTTP/1.1 ${status}\r\nContent-Type: ${type}\r\nContent-Length: ${text.length}\r\n\r\n${text}`)
  }

  private compare(want: Exchange['request'], got: Parsed): void {
    const check = (what: string, a: unknown, b: unknown): void => {
      try {
        assert.deepEqual(a, b)
      } catch (error) {
        this.faults.push(`${what}: ${(error as Error).message}`)
      }
    }
    check('request', [got.method, got.url.pathname], [want.method, want.path])
    if (want.query) check('query', Object.fromEntries(got.url.searchParams), want.query)
    for (const [name, value] of Object.entries(want.headers ?? {})) check(`header ${name}`, value === '*' && got.headers[name] ? '*' : got.headers[name], value)
    for (const name of want.same ?? []) check(`header ${name}`, got.headers[name], this.before[name])
    if (want.body === undefined || want.body === '*') return
    const body = JSON.parse(got.body) as Doc
    for (const [name, value] of Object.entries(want.body as Doc)) if (value === '*' && name in body) body[name] = '*'
    check('body', body, want.body)
  }
}

interface Parsed {
  method: string
  url: URL
  headers: Record<string, string>
  body: string
  length: number
}

/** Returns the first request in bytes, or undefined if it is not complete. */
function parse(bytes: Buffer): Parsed | undefined {
  const end = bytes.indexOf('\r\n\r\n')
  if (end < 0) return undefined
  const [first, ...lines] = bytes.toString('latin1', 0, end).split('\r\n')
  const [method, target] = (first as string).split(' ') as [string, string]
  const headers = Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()]))
  const length = end + 4 + Number(headers['content-length'] ?? 0)
  if (bytes.length < length) return undefined
  return { method, url: new URL(target, 'http://x'), headers, body: bytes.toString('utf8', end + 4, length), length }
}

/** Joins the pieces of output as the vectors have them. */
function joined(output: Output[]): [string, string][] {
  const out: [string, Uint8Array[]][] = []
  for (const { stream, data } of output) {
    if (out.at(-1)?.[0] === stream) out.at(-1)?.[1].push(data)
    else out.push([stream, [data]])
  }
  return out.map(([stream, parts]) => [stream, Buffer.concat(parts).toString()])
}

function shownResult(result: Result): Doc {
  return { stdout: result.stdout, stderr: result.stderr, exit_code: result.exitCode, ok: result.ok, signal: result.signal || null, truncated: false }
}

function shownExecution(run: Execution): Doc {
  const error = run.error && { name: run.error.name, value: run.error.value }
  return { text: run.text, value: run.value, stdout: run.stdout, stderr: run.stderr, error, results: run.results.map((one) => Object.keys(one.forms).sort()) }
}

/** Does what a case says. */
async function perform(client: Client, sandbox: Sandbox, operation: string, args: Doc): Promise<unknown> {
  const { command, path } = args as { command: ramet.Command; path: string }
  const timeout = args['timeout'] === undefined ? undefined : Number(args['timeout']) * 1000
  const { env, cwd, stdin } = args as { env?: Record<string, string>; cwd?: string; stdin?: string }
  switch (operation) {
    case 'exec':
      return shownResult(await sandbox.exec(command, { env, cwd, stdin, timeout }))
    case 'exec_stream': {
      const run = sandbox.exec(command, { env, cwd, stdin, timeout, stream: true })
      const output: Output[] = []
      for await (const piece of run) output.push(piece)
      return { chunks: joined(output), exit_code: (await run.result).exitCode }
    }
    case 'run_code': {
      const { code, language, context } = args as { code: string; language?: ramet.Language; context?: string }
      return shownExecution(await sandbox.runCode(code, { language, context, timeout }))
    }
    case 'create': {
      const { image, name, memory, ttl } = args as { image: string; name?: string; memory?: number; ttl?: number }
      const made = await client.create({ image, name, memory, ttl: ttl === undefined ? undefined : ttl * 1000 })
      return { id: made.id, state: made.state }
    }
    case 'info': {
      const info = await sandbox.info()
      return { id: info.id, state: info.state }
    }
    case 'fork': {
      const { n, names, hold, record, secret_env } = args as { n?: number; names?: string[]; hold?: boolean; record?: boolean; secret_env?: boolean }
      return { children: (await sandbox.fork({ count: n, names, hold, record, secretEnv: secret_env })).map((child) => child.id) }
    }
    case 'explore': {
      const { command, score, goal, ...plan } = args as unknown as { command: string; score: 'number'; goal: 'min'; variants: Record<string, string>[]; then: 'promote' }
      const found = await sandbox.explore({ ...plan, command, score: { by: score, goal }, variants: plan.variants.map((env) => ({ env })), timeout })
      return { state: found.state, scores: found.attempts.map((one) => one.score), winners: found.winners.map((one) => one.index) }
    }
    case 'explore_events': {
      const kinds: unknown[] = []
      for await (const event of await sandbox.explore(command, { wait: false })) kinds.push(event.kind)
      return { kinds }
    }
    case 'held':
    case 'release':
    case 'drop': {
      const { held } = sandbox
      const ref = args['id'] as string | undefined
      const requests = await (operation === 'held' ? held.list() : operation === 'drop' ? held.drop(ref) : held.release(ref, { again: args['again'] as boolean | undefined }))
      return { ids: requests.map((one) => one.id), states: requests.map((one) => one.state) }
    }
    case 'secrets':
      return { names: (await client.secrets.list()).map((one) => one.name) }
    case 'set_secret': {
      const { name, ...options } = args as unknown as { name: string } & ramet.SecretOptions
      return { name: (await client.secrets.set(name, options)).name }
    }
    case 'publish': {
      const published = await sandbox.port(Number(args['port'])).publish({ hostPort: Number(args['host_port']), token: String(args['token']) })
      return { host_port: published.hostPort, protected: published.protected }
    }
    case 'unpublish':
      return (await sandbox.unpublish(Number(args['host_port']))) ?? null
    case 'destroy':
      return (await sandbox.destroy()) ?? null
    case 'read':
      return { base64: Buffer.from(await sandbox.files.readBytes(path)).toString('base64') }
    case 'write':
      return { size: (await sandbox.files.write(path, Buffer.from(String(args['base64']), 'base64'))).size }
    case 'list':
      return { paths: (await sandbox.files.list(path)).map((file) => file.path) }
    case 'process_output': {
      const { transport } = client as unknown as { transport: unknown } // users have it from what they started
      const process = Reflect.construct(Process, [transport, sandbox.id, { pid: args['pid'] }]) as Process
      const output: ramet.KeptOutput[] = []
      const reading = process.output({ follow: true })
      let next = await reading.next()
      for (; !next.done; next = await reading.next()) output.push(next.value)
      return { chunks: joined(output), lost: output.reduce((sum, piece) => sum + piece.lost, 0), exit_code: next.value.exit?.exitCode ?? null }
    }
    case 'events': {
      const kinds: unknown[] = []
      for await (const event of sandbox.events()) kinds.push(event.kind)
      return { kinds }
    }
    case 'merge': {
      const merged = await sandbox.merge(args['from'] as string[])
      return { applied: merged.applied.map((one) => one.path), conflicts: merged.conflicts.map((one) => one.path) }
    }
  }
  return assert.fail(`there is no operation ${operation}`)
}

/** Compares the members that are wanted. */
function compare(want: unknown, got: unknown): void {
  if (want === null || typeof want !== 'object') return assert.deepEqual(got, want)
  assert.deepEqual(Object.fromEntries(Object.keys(want).map((name) => [name, (got as Doc)[name]])), want)
}

const dir = mkdtempSync(join(tmpdir(), 'ramet-ts-vectors-'))
after(() => rmSync(dir, { recursive: true }))
let number = 0

const vectors = join(repository, 'sdk/vectors')
for (const file of readdirSync(vectors).filter((name) => name.endsWith('.json'))) {
  for (const vector of JSON.parse(readFileSync(join(vectors, file), 'utf8')) as Case[]) {
    test(`${basename(file, '.json')}: ${vector.name}`, async () => {
      const path = join(dir, `${++number}.sock`)
      const stub = new Stub(path, vector.exchanges, vector.probe)
      const client = new Client({ host: `unix:${path}`, probe: { interval: 100, timeout: vector.probe === 'hang' ? 200 : 30_000 } })
      const sandbox = Reflect.construct(Sandbox, [client, { id, name: '', state: 'running' }, false]) as Sandbox
      const { operation, arguments: args } = vector.call
      try {
        const outcome = await perform(client, sandbox, operation, args).then(
          (result) => ({ result }),
          (error: unknown) => ({ error: error as ramet.Timeout & ramet.ForkError<Sandbox> }),
        )
        const want = vector.expect.error
        if (want === undefined) {
          if ('error' in outcome) throw outcome.error
          compare(vector.expect.result, outcome.result)
          return
        }
        assert.ok('error' in outcome, `there is no error: ${JSON.stringify(outcome)}`)
        const { error } = outcome
        const kind = (ramet as unknown as Record<string, new (...args: never[]) => Error>)[String(want['class'])]
        assert.ok(kind && error instanceof kind, String(error))
        for (const name of ['code', 'field', 'status'] as const) if (name in want) assert.equal(error[name], want[name])
        if (want['remedy']) assert.ok(error.remedy?.includes(String(want['remedy'])), error.remedy)
        if (want['detail']) assert.ok(error.detail.includes(String(want['detail'])), error.detail)
        if (want['result']) compare(want['result'], 'results' in (error.result as Doc) ? shownExecution(error.result as Execution) : shownResult(error.result as Result))
        if (want['children']) assert.deepEqual(error.children.map((child) => child.id), want['children'])
      } finally {
        client.close()
        await stub.close()
      }
      assert.deepEqual(stub.faults, [])
    })
  }
}
