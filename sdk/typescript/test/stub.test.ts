// What happens when the daemon, or the connection to it, fails: a stub plays the daemon.
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { connect, Conflict, LimitExceeded, PermissionDenied, RametError, Sandbox, SandboxGone, Unavailable, type Client, type ConnectOptions } from 'ramet'

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void

const dir = mkdtempSync(join(tmpdir(), 'ramet-ts-stub-'))
const servers: Server[] = []
const clients: Client[] = []
after(() => {
  for (const client of clients) client.close()
  for (const server of servers) {
    server.closeAllConnections()
    server.close()
  }
  rmSync(dir, { recursive: true })
})

const info = { id: 'sbx_stub', name: '', state: 'running', image: 'img_x', parent: '', depth: 0, created_at: '', identity: {}, isolation: {}, limits: {} }

/** Starts a stub, and returns its client, a sandbox of it and the requests that it got. */
async function stub(handle: Handler, options: ConnectOptions = {}) {
  const seen: { method: string; url: string; key: string | undefined; body: string }[] = []
  let started = false
  const server = createServer((request, response) => {
    const parts: Buffer[] = []
    request.on('data', (part: Buffer) => parts.push(part)).on('end', () => {
      const body = Buffer.concat(parts).toString()
      if (!started && request.url === '/v1/sandboxes/sbx_first') return json(response, { ...info })
      seen.push({ method: request.method ?? '', url: request.url ?? '', key: request.headers['idempotency-key'] as string | undefined, body })
      handle(request, response, body)
    })
  })
  servers.push(server)
  const socket = join(dir, `${servers.length}.sock`)
  await new Promise<void>((done) => server.listen(socket, done))
  const client = connect({ host: `unix:${socket}`, ...options })
  clients.push(client)
  const sandbox = await client.sandbox('sbx_first')
  started = true
  return { client, sandbox, seen, server }
}

function json(response: ServerResponse, doc: unknown, status = 200, type = 'application/json'): void {
  response.writeHead(status, { 'content-type': type }).end(JSON.stringify(doc))
}

/** Answers an exec: a frame of output, and the last frame. */
function ended(response: ServerResponse, stdout: string): void {
  const exit = { exit: { stdout: '', stderr: '', exit_code: 0, ok: true, signal: '', duration_ms: 1 } }
  response.writeHead(200, { 'content-type': 'application/vnd.ramet.frames' })
  response.end(Buffer.concat([frame(1, stdout), frame(3, JSON.stringify(exit))]))
}

function frame(stream: number, payload: string): Buffer {
  const head = Buffer.alloc(5)
  head[0] = stream
  head.writeUInt32BE(Buffer.byteLength(payload), 1)
  return Buffer.concat([head, Buffer.from(payload)])
}

function problem(response: ServerResponse, status: number, code: string, more: object = {}): void {
  json(response, { type: '', title: '', status, code, detail: `detail of ${code}`, ...more }, status, 'application/problem+json')
}

test('problems are errors of their class, with all that they say', async () => {
  const answers: [number, string, object, new (...args: never[]) => RametError][] = [
    [409, 'wrong_state', {}, Conflict],
    [429, 'limit_exceeded', { exceeded: { limit: 'sandboxes', max: 3, of: 'tenant a', used: 3, retry_s: 5 }, request_id: 'r1' }, LimitExceeded],
    [403, 'forbidden', {}, PermissionDenied],
    [409, 'sandbox_died', {}, SandboxGone],
    [418, 'a_code_of_tomorrow', {}, RametError],
  ]
  for (const [status, code, more, kind] of answers) {
    const { sandbox } = await stub((_, response) => problem(response, status, code, more))
    await assert.rejects(sandbox.exec('true'), (error: RametError) => {
      assert.ok(error instanceof kind)
      assert.deepEqual([error.code, error.status, error.name], [code, status, kind.name])
      assert.equal(error.exceeded?.retryS, code === 'limit_exceeded' ? 5 : undefined)
      return true
    })
  }
})

test('an answer that is not one of a daemon says so', async () => {
  for (const [status, text, type] of [[502, 'bad gateway', 'text/html'], [404, '{}', 'application/problem+json'], [500, '{"code":"internal"}', 'application/json']] as const) {
    const { sandbox } = await stub((_, response) => response.writeHead(status, { 'content-type': type }).end(text))
    await assert.rejects(sandbox.exec('true'), (error: Unavailable) => error instanceof Unavailable && error.status === status && /not one of a Ramet daemon/.test(error.message))
  }
  const { sandbox } = await stub((_, response) => response.writeHead(200, { 'content-type': 'application/json' }).end('{"stdout":'))
  await assert.rejects(sandbox.exec('true'), Unavailable)
})

test('a change whose answer is lost is asked for again with the same key', async () => {
  let lost = 0
  const { sandbox, seen } = await stub((_, response) => {
    if (lost++ < 2) response.destroy()
    else json(response, { pause_ms: 1, snapshot_ms: 1, return_ms: 1, children: [{ sandbox: info }] })
  })
  const children = await sandbox.fork()
  assert.equal(children[0]?.id, 'sbx_stub')
  assert.equal(seen.length, 3)
  assert.equal(new Set(seen.map((one) => one.key)).size, 1)
  assert.match(seen[0]?.key ?? '', /^[0-9a-f-]{36}$/)
})

test('a command whose answer is lost is not run again', async () => {
  const { sandbox, seen } = await stub((request, response) => (request.method === 'GET' ? json(response, info) : response.destroy()))
  await assert.rejects(sandbox.exec('true'), (error: Unavailable) => error instanceof Unavailable && /ended before it had answered/.test(error.message))
  const asked = seen.map((one) => JSON.parse(one.body) as { key: string; from?: number })
  assert.deepEqual([...new Set(asked.map((one) => one.from))], [undefined, 0]) // only the first begins a command
  assert.equal(asked[1]?.from, 0)
  assert.equal(new Set(asked.map((one) => one.key)).size, 1)
  seen.length = 0
  await assert.rejects(sandbox.runCode('1'), Unavailable)
  await assert.rejects(sandbox.exec('cat', { stdin: 'x' }), Unavailable)
  assert.deepEqual(seen.map((one) => [one.method, one.key]), [['POST', undefined], ['POST', undefined]])
})

test('a command is asked for again at the byte that was read, and not begun again', async () => {
  const { sandbox, seen } = await stub((request, response, body) => {
    if (request.method === 'GET') return json(response, info)
    const { from } = JSON.parse(body) as { from?: number }
    if (from === 3) return ended(response, 'def')
    response.writeHead(200).write(frame(1, 'abc'))
    setTimeout(() => response.destroy(), 20)
  })
  const result = await sandbox.exec('true')
  assert.equal(result.stdout, 'abcdef')
  const asked = seen.filter((one) => one.method === 'POST').map((one) => JSON.parse(one.body) as { key: string; from?: number })
  assert.deepEqual(asked.map((one) => one.from), [undefined, 3])
  assert.match(asked[0]?.key ?? '', /^[0-9a-f]{32}$/)
  assert.equal(asked[1]?.key, asked[0]?.key)
})

test('a command that a daemon leaves at its end is asked for at the next one', async () => {
  const { sandbox } = await stub((request, response, body) => {
    if (request.method === 'GET') return json(response, info)
    const { from } = JSON.parse(body) as { from?: number }
    if (from === 3) return ended(response, 'def')
    const leaving = { error: { code: 'unavailable', detail: 'the daemon is about to end: ask again', status: 503 } }
    response.writeHead(200).end(Buffer.concat([frame(1, 'abc'), frame(3, JSON.stringify(leaving))]))
  })
  assert.equal((await sandbox.exec('true')).stdout, 'abcdef')
})

test('reading is asked for again, and a lost daemon is an error in the end', async () => {
  const { sandbox, seen } = await stub((_, response) => response.destroy())
  await assert.rejects(sandbox.info(), Unavailable)
  assert.equal(seen.length, 3)
})

test('a daemon that is about to end is asked again', async () => {
  let answered = 0
  const { sandbox, seen } = await stub((_, response) => {
    if (answered++ > 0) return ended(response, 'x')
    response.setHeader('retry-after', '1')
    problem(response, 503, 'unavailable')
  })
  assert.equal((await sandbox.exec('true')).stdout, 'x')
  assert.equal(seen.length, 2)
})

test('an answer that breaks off is an error, and the sandbox says whether it was the reason', async () => {
  for (const [state, kind, text] of [
    [{ ...info, state: 'failed', reason: 'out of memory: limit 64 MiB' }, SandboxGone, /failed: out of memory: limit 64 MiB/],
    [info, Unavailable, /broke off in the middle/],
    [undefined, SandboxGone, /was destroyed meanwhile/],
  ] as const) {
    const { sandbox } = await stub((request, response) => {
      if (request.method === 'GET' && !request.url?.includes('files')) return state ? json(response, state) : problem(response, 404, 'not_found')
      response.writeHead(200, { 'content-length': '1000' })
      response.write(request.url?.includes('exec') ? Buffer.from([1, 0, 0, 0, 3, 97, 98]) : 'begun')
      setTimeout(() => response.destroy(), 20)
    })
    const failed = (error: RametError): boolean => error instanceof kind && text.test(error.message)
    await assert.rejects(async () => {
      for await (const _ of sandbox.exec('true', { stream: true }));
    }, failed)
    await assert.rejects(sandbox.files.read('/x'), failed)
    await assert.rejects(sandbox.exec('true'), failed)
  }
})

test('an answer that ends too early, but in order, is an error', async () => {
  const { sandbox } = await stub((request, response) => (request.url?.includes('/output') || request.method === 'POST' ? response.end('event: stdout\n') : json(response, info)))
  await assert.rejects(async () => {
    for await (const _ of sandbox.exec('true', { stream: true }));
  }, Unavailable)
  await assert.rejects(sandbox.runCode('1', { onStdout: () => undefined }), Unavailable)
})

test('a daemon that hangs is an error for each kind of call', async () => {
  const probe = { interval: 50, timeout: 100 }
  const { sandbox } = await stub((request, response) => {
    if (request.url?.includes('/exec') && request.headers.accept === 'application/vnd.ramet.frames') response.writeHead(200).write(Buffer.from([1, 0, 0, 0, 1, 97]))
  }, { probe })
  const hung = (error: Unavailable): boolean => error instanceof Unavailable && /does not answer any more/.test(error.message)
  await assert.rejects(sandbox.exec('true'), hung)
  await assert.rejects(sandbox.files.read('/x'), hung)
  await assert.rejects(sandbox.files.write('/x', (async function* () { yield Buffer.from('x') })()), hung)
  await assert.rejects(sandbox.exec('true', { stdin: new Uint8Array(1) }), hung)
  await assert.rejects(async () => {
    for await (const _ of sandbox.exec('true', { stream: true }));
  }, hung)
  await assert.rejects(async () => {
    for await (const _ of sandbox.events({ follow: true }));
  }, hung)
})

test('a call that takes long is not ended while the daemon lives', async () => {
  let probes = 0
  let asked: ServerResponse | undefined
  const { sandbox } = await stub((request, response) => {
    if (request.url === '/healthz') {
      json(response, { status: 'ok', version: 'x', pid: 1 })
      if (++probes >= 3 && asked) ended(asked, 'late')
      return
    }
    if (request.method === 'GET') return json(response, info)
    asked = response
  }, { probe: { interval: 30, timeout: 5_000 } })
  assert.equal((await sandbox.exec('true')).stdout, 'late')
})

test('an aborted call ends at once, whatever it waits for', async () => {
  const { sandbox } = await stub(() => undefined)
  const calls: ((signal: AbortSignal) => Promise<unknown>)[] = [
    (signal) => sandbox.exec('true', { signal }),
    (signal) => sandbox.files.read('/x', { signal }),
    (signal) => sandbox.fork({ signal }),
    (signal) => sandbox.exec('true', { signal, stdin: new Uint8Array(1) }),
    async (signal) => {
      for await (const _ of sandbox.exec('true', { stream: true, signal }));
    },
  ]
  for (const call of calls) {
    await assert.rejects(call(AbortSignal.timeout(30)), { name: 'TimeoutError' })
    await assert.rejects(call(AbortSignal.abort(new Error('before'))), /^Error: before$/)
  }
})

test('nobody listens: the error says where and what to do', async () => {
  const client = connect({ host: 'unix:/nowhere/ramet.sock' })
  await assert.rejects(client.list(), (error: Unavailable) => error instanceof Unavailable && /\/nowhere\/ramet\.sock/.test(error.message) && error.remedy !== undefined)
})

test('each request has the headers that it is asked to have', async () => {
  const got: (string | undefined)[] = []
  const { sandbox } = await stub((request, response) => {
    got.push(`${request.headers['traceparent'] as string} ${request.headers.authorization ?? ''} ${request.headers['user-agent'] ?? ''}`)
    json(response, { ...info, items: [] })
  }, { token: 'ramet_x', headers: () => ({ traceparent: '00-1-2-01' }) })
  await sandbox.info()
  await sandbox.ports()
  await sandbox.files.write('/x', 'y')
  for (const one of got) assert.match(one ?? '', /^00-1-2-01 Bearer ramet_x ramet-typescript\/\d/)
  assert.equal(got.length, 3)
})

test('pages of a list are read one after the other', async () => {
  const { client, seen } = await stub((request, response) => {
    const token = new URL(request.url ?? '', 'http://x').searchParams.get('page_token')
    json(response, token ? { items: [{ ...info, id: 'sbx_b' }] } : { items: [{ ...info, id: 'sbx_a' }], next_page_token: 'more' })
  })
  assert.deepEqual((await client.list({ state: 'running', metadata: { a: 'b' } })).map((one: Sandbox) => one.id), ['sbx_a', 'sbx_b'])
  assert.deepEqual(seen.map((one) => one.url), [
    '/v1/sandboxes?metadata=a%3Db&state=running&limit=1000',
    '/v1/sandboxes?metadata=a%3Db&state=running&limit=1000&page_token=more',
  ])
})

test('events go on after the last one when the connection is lost', async () => {
  let connections = 0
  const { client, seen } = await stub((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const seq = ++connections
    response.write(`event: event\nid: ${seq}\ndata: {"seq":${seq},"sandbox_id":"sbx_a","time":"","kind":"paused"}\n\n`)
    if (seq === 1) setTimeout(() => response.destroy(), 10)
    else response.end('event: end\ndata: {}\n\n')
  })
  const seqs: number[] = []
  for await (const event of client.events({ follow: true })) seqs.push(event.seq)
  assert.deepEqual(seqs, [1, 2])
  assert.deepEqual(seen.map((one) => one.url), ['/v1/events?since=0&follow=true', '/v1/events?since=1&follow=true'])
})
