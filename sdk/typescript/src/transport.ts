import { randomUUID } from 'node:crypto'
import { Agent as HttpAgent, request as httpRequest, type ClientRequest, type IncomingMessage, type RequestOptions } from 'node:http'
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https'
import type { Duplex } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { resolveAddress, startDaemon, type Address, type ConnectOptions } from './address.js'
import { errorOf, InvalidRequest, mismatchOf, RametError, SandboxGone, Unavailable, type Problem } from './errors.js'
import { fromWire } from './models.js'
import { BrokenOff, Malformed, readEvents, type WireEvent } from './wire.js'
import { version } from './version.js'

/** What each call takes. */
export interface CallOptions {
  /** Ends the call. What it was doing in a sandbox ends with it. */
  signal?: AbortSignal | undefined
}

/** What a call that changes something takes. */
export interface ChangeOptions extends CallOptions {
  /** The change is done once, however often it is asked for with this key. Made up if absent. */
  idempotencyKey?: string | undefined
}

export type Query = Record<string, string | number | boolean | readonly string[] | undefined>

/** One request. */
export interface Request {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'HEAD'
  path: string
  query?: Query | undefined
  headers?: Record<string, string> | undefined
  /** A document to send as JSON. */
  json?: unknown
  /** Bytes to send. */
  body?: Uint8Array | AsyncIterable<Uint8Array> | undefined
  accept?: string | undefined
  signal?: AbortSignal | undefined
  idempotencyKey?: string | undefined
  /** The request may be sent again if its answer was lost. */
  repeatable?: boolean | undefined
  /** The sandbox that the request is about: it is asked why an answer broke off. */
  sandbox?: string | undefined
}

const problemType = 'application/problem+json'
const maxProblem = 1 << 20
// A lost answer is asked for again so many times, after these pauses in milliseconds.
const pauses = [50, 500]
const connectTimeout = 5_000

/** Makes a ref one segment of a path. */
export function segment(ref: string): string {
  if (typeof ref !== 'string' || ref === '' || ref === '.' || ref === '..') {
    throw new InvalidRequest(`${JSON.stringify(ref)} is not an id or name`, { code: 'invalid_argument', field: 'id' })
  }
  return encodeURIComponent(ref)
}

/** A call that waits for the daemon. */
interface Waiting {
  sandbox: string | undefined
  fail(error: RametError): void
}

/** A pool of connections to one daemon. */
export class Transport {
  readonly address: Address
  private readonly agent: HttpAgent | HttpsAgent
  private readonly extraHeaders: (() => Record<string, string>) | undefined
  private readonly probe: { interval: number; timeout: number }
  private readonly waiting = new Set<Waiting>()
  private prober: NodeJS.Timeout | undefined
  private starting: Promise<void> | undefined

  constructor(options: ConnectOptions = {}) {
    this.address = resolveAddress(options)
    this.extraHeaders = options.headers
    this.probe = options.probe ?? { interval: 5_000, timeout: 15_000 }
    this.agent = this.newAgent(true)
    Object.defineProperty(this, 'address', { enumerable: false }) // it has the token, and whoever shows a client does not mean that
  }

  /** What has a transport is stored without it: connections are circular. */
  toJSON(): undefined {
    return undefined
  }

  private newAgent(keepAlive: boolean): HttpAgent | HttpsAgent {
    const { url, ca } = this.address
    // The daemon closes idle connections after two minutes.
    const options = { keepAlive, maxSockets: Infinity, maxFreeSockets: 128, scheduling: 'lifo' as const }
    return url?.protocol === 'https:' ? new HttpsAgent({ ...options, minVersion: 'TLSv1.2', ...(ca ? { ca } : {}) }) : new HttpAgent(options)
  }

  /** Ends the idle connections. */
  close(): void {
    this.agent.destroy()
  }

  /** Ends the idle connections of a daemon that has ended. */
  private dropIdle(): void {
    for (const sockets of Object.values(this.agent.freeSockets)) for (const socket of [...(sockets ?? [])]) socket.destroy()
  }

  /** The URL of a path below the daemon, without credentials; undefined at a socket. */
  urlOf(path: string): string | undefined {
    return this.address.url ? this.address.url.origin + this.address.url.pathname.replace(/\/$/, '') + path : undefined
  }

  /** Makes a request and decodes the answer, whose members get the names of JavaScript. */
  async call<T>(request: Request): Promise<T> {
    return fromWire<T>(await this.raw(request))
  }

  /** Makes a request and decodes the answer as it is. */
  async raw(request: Request): Promise<unknown> {
    const answer = await this.send({ accept: 'application/json', ...request })
    if (answer.statusCode === 204) {
      answer.resume()
      return undefined
    }
    const parts: Buffer[] = []
    try {
      for await (const part of answer) parts.push(part as Buffer)
      const text = parts.length === 1 ? (parts[0] as Buffer).toString() : Buffer.concat(parts).toString()
      return text === '' ? undefined : JSON.parse(text)
    } catch (error) {
      throw await this.broken(request, error)
    }
  }

  /** Collects the pages of a list. */
  async *pages<T>(request: Request, limit = 1000): AsyncGenerator<T, void, undefined> {
    let token: string | undefined
    do {
      const page = await this.call<{ items: T[]; nextPageToken?: string }>({ ...request, query: { ...request.query, limit, page_token: token } })
      yield* page.items
      token = page.nextPageToken
    } while (token)
  }

  /** Makes a request and yields the events of the answer. The event "error" is thrown. */
  async *events(request: Request): AsyncGenerator<WireEvent, void, undefined> {
    const answer = await this.send({ ...request, accept: 'text/event-stream' })
    try {
      for await (const event of readEvents(answer)) {
        if (event.name === 'error') throw errorOf(event.data as Problem)
        yield event
      }
    } catch (error) {
      throw await this.broken(request, error)
    } finally {
      answer.destroy()
    }
  }

  /** Makes a request and yields the bytes of the answer. */
  async *bytes(request: Request): AsyncGenerator<Uint8Array, void, undefined> {
    const answer = await this.send({ accept: '*/*', ...request })
    yield* this.bodyOf(answer, request)
  }

  /** Yields the bytes of an answer, whose errors say why it broke off. */
  async *bodyOf(answer: IncomingMessage, request: Request): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      for await (const part of answer) yield part as Uint8Array
    } catch (error) {
      throw await this.broken(request, error)
    } finally {
      answer.destroy()
    }
  }

  /** Makes a request and returns the answer, whose status is one of success. */
  async send(request: Request): Promise<IncomingMessage> {
    const { method } = request
    let key = request.idempotencyKey
    if (key === undefined && request.repeatable && method !== 'GET' && method !== 'PUT') key = randomUUID()
    const repeatable = method === 'GET' || method === 'HEAD' || key !== undefined || (request.repeatable === true && !isStream(request.body))
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.once(request, key)
      } catch (error) {
        if (request.signal?.aborted) throw request.signal.reason
        const failure = connectionFailure(error)
        if (failure === undefined) {
          const draining = retryAfter.get(error as object)
          if (draining === undefined || isStream(request.body) || attempt > 1) throw fromHere(error, this.send)
          await this.pause(Math.min(draining, 2_000), request)
          continue
        }
        if (failure.nobody && this.address.own && attempt === 0) {
          await this.start()
          continue
        }
        if (unsent.has(error as object) && !isStream(request.body)) {
          this.dropIdle()
          continue
        }
        const pause = pauses[attempt]
        if ((!repeatable && !failure.nobody) || pause === undefined || (failure.nobody && !this.address.own)) throw unavailable(error)
        await this.pause(pause, request)
      }
    }
  }

  private async pause(time: number, request: Request): Promise<void> {
    await delay(time, undefined, request.signal ? { signal: request.signal } : {}).catch(() => {
      throw request.signal?.reason
    })
  }

  /** Opens a connection that is not one of HTTP any more after the answer. */
  async upgrade(request: Request & { protocol: string }): Promise<{ answer: IncomingMessage; socket: Duplex; head: Buffer }> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.upgradeOnce(request)
      } catch (error) {
        if (request.signal?.aborted) throw request.signal.reason
        const failure = connectionFailure(error)
        if (failure === undefined) throw error
        if (!failure.nobody || !this.address.own || attempt > 0) throw unavailable(error)
        await this.start()
      }
    }
  }

  private async start(): Promise<void> {
    this.starting ??= startDaemon().finally(() => {
      this.starting = undefined
    })
    await this.starting
  }

  private options(request: Request, key: string | undefined): RequestOptions {
    const headers: Record<string, string | number> = { 'user-agent': `ramet-typescript/${version}`, ...this.extraHeaders?.() }
    if (request.accept) headers['accept'] = request.accept
    if (this.address.token) headers['authorization'] = `Bearer ${this.address.token}`
    if (key !== undefined) headers['idempotency-key'] = key
    const path = request.path + queryText(request.query)
    const { socket, url } = this.address
    return {
      method: request.method,
      headers: Object.assign(headers, request.headers),
      agent: this.agent,
      ...(socket !== undefined || url === undefined
        ? { socketPath: socket, host: 'ramet', path }
        : { host: url.hostname.replace(/^\[|\]$/g, ''), port: url.port || (url.protocol === 'https:' ? 443 : 80), path: url.pathname.replace(/\/$/, '') + path }),
    } as RequestOptions
  }

  private open(options: RequestOptions): ClientRequest {
    return this.address.url?.protocol === 'https:' ? httpsRequest(options) : httpRequest(options)
  }

  private once(request: Request, key: string | undefined, watched = true): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const { signal } = request
      if (signal?.aborted) return reject(signal.reason)
      let body = request.body
      const options = this.options(request, key)
      const headers = options.headers as Record<string, string | number>
      if (request.json !== undefined) {
        body = Buffer.from(JSON.stringify(request.json))
        headers['content-type'] = 'application/json'
      } else if (body !== undefined) {
        headers['content-type'] ??= 'application/octet-stream'
      }
      if (body instanceof Uint8Array) headers['content-length'] = body.length
      const outgoing = this.open(options)
      let answer: IncomingMessage | undefined
      let sent: Promise<void> | undefined
      const fail = (error: unknown): void => {
        const reason = error instanceof Error ? error : new Error(String(error))
        outgoing.destroy(reason)
        answer?.destroy(reason)
        reject(error)
      }
      const aborted = (): void => fail(signal?.reason)
      const waiting = watched ? this.watch(request.sandbox, fail) : undefined
      const ended = (): void => {
        signal?.removeEventListener('abort', aborted)
        if (waiting) this.unwatch(waiting)
      }
      signal?.addEventListener('abort', aborted, { once: true })
      bindConnectTimeout(outgoing)
      outgoing.once('response', (response) => {
        answer = response
        response.once('close', ended)
        const mismatch = mismatchOf(interfaceOf(response))
        if (mismatch) return fail(mismatch)
        if ((response.statusCode ?? 0) >= 300) {
          problemOf(response, request.sandbox).then(reject, reject)
          return
        }
        if (sent) sent.then(() => resolve(response), fail)
        else resolve(response)
      })
      outgoing.once('error', (error) => {
        ended()
        // The daemon had closed this idle connection before the request: nobody has got it.
        if ((error as NodeJS.ErrnoException).code === 'EPIPE' && outgoing.reusedSocket) unsent.add(error)
        reject(error)
      })
      if (body === undefined || body instanceof Uint8Array) outgoing.end(body)
      else {
        sent = feed(outgoing, body)
        sent.catch((error: unknown) => {
          if (!answer) fail(error)
        })
      }
    })
  }

  private upgradeOnce(request: Request & { protocol: string }): Promise<{ answer: IncomingMessage; socket: Duplex; head: Buffer }> {
    return new Promise((resolve, reject) => {
      const { signal } = request
      if (signal?.aborted) return reject(signal.reason)
      const options = this.options(request, undefined)
      Object.assign(options.headers as object, { connection: 'Upgrade', upgrade: request.protocol })
      const outgoing = this.open({ ...options, agent: this.newAgent(false) })
      const fail = (error: unknown): void => {
        outgoing.destroy(error instanceof Error ? error : new Error(String(error)))
        reject(error)
      }
      const aborted = (): void => fail(signal?.reason)
      const waiting = this.watch(request.sandbox, fail)
      const ended = (): void => {
        signal?.removeEventListener('abort', aborted)
        this.unwatch(waiting)
      }
      signal?.addEventListener('abort', aborted, { once: true })
      bindConnectTimeout(outgoing)
      outgoing.once('upgrade', (answer, socket: Duplex, head) => {
        ended()
        const hold = this.watch(request.sandbox, (error) => socket.destroy(error))
        socket.once('close', () => this.unwatch(hold))
        resolve({ answer, socket, head })
      })
      outgoing.once('response', (response) => {
        ended()
        problemOf(response, request.sandbox).then(reject, reject)
      })
      outgoing.once('error', (error) => {
        ended()
        reject(error)
      })
      outgoing.end()
    })
  }

  /** Fails a call when the daemon does not answer any more. A timer asks it, for as long as there are calls. */
  private watch(sandbox: string | undefined, fail: (error: RametError) => void): Waiting {
    const waiting = { sandbox, fail }
    this.waiting.add(waiting)
    if (this.prober === undefined && this.probe.interval > 0) this.schedule()
    return waiting
  }

  private unwatch(waiting: Waiting): void {
    this.waiting.delete(waiting)
    if (this.waiting.size === 0) {
      clearTimeout(this.prober)
      this.prober = undefined
    }
  }

  private schedule(): void {
    this.prober = setTimeout(() => {
      void this.ask([...this.waiting]).then(() => {
        if (this.waiting.size > 0) this.schedule()
        else this.prober = undefined
      })
    }, this.probe.interval)
    this.prober.unref()
  }

  /** Asks for calls that wait whether the daemon lives, and whether their sandboxes are there. */
  private async ask(waiting: Waiting[]): Promise<void> {
    const fail = (calls: Waiting[], error: RametError): void => {
      for (const call of calls) if (this.waiting.has(call)) call.fail(error)
    }
    if (!(await this.isAlive())) {
      return fail(waiting, new Unavailable(`the daemon does not answer any more: it has not said within ${this.probe.timeout} ms that it lives`, { code: 'unavailable' }))
    }
    for (const sandbox of new Set(waiting.map((call) => call.sandbox))) {
      const why = sandbox === undefined ? undefined : await this.whySandboxEnded(sandbox)
      if (why) fail(waiting.filter((call) => call.sandbox === sandbox), why)
    }
  }

  /** Asks the daemon over a connection of its own whether it lives. A refused connection says nothing: calls end by themselves then. */
  private isAlive(): Promise<boolean> {
    return new Promise((resolve) => {
      const outgoing = this.open({ ...this.options({ method: 'GET', path: '/healthz' }, undefined), agent: this.newAgent(false) })
      const timer = setTimeout(() => {
        outgoing.destroy()
        resolve(false)
      }, this.probe.timeout)
      timer.unref()
      const done = (): void => {
        clearTimeout(timer)
        resolve(true)
      }
      outgoing.once('response', (response) => {
        response.resume()
        done()
      })
      outgoing.once('error', done)
      outgoing.end()
    })
  }

  /** Returns the error of an answer that broke off in the middle. The sandbox says whether it was the reason. */
  async broken(request: Request, error: unknown): Promise<unknown> {
    if (request.signal?.aborted) return request.signal.reason
    if (error instanceof RametError) return error
    if (!(error instanceof BrokenOff) && !(error instanceof SyntaxError) && connectionFailure(error) === undefined) return error
    const why = request.sandbox === undefined ? undefined : await this.whySandboxEnded(request.sandbox)
    if (why !== undefined) return why
    if (error instanceof Malformed || error instanceof SyntaxError) {
      return new Unavailable(`the answer is not one of a Ramet daemon: ${error.message}`, { code: 'unavailable', cause: error })
    }
    const text = `the answer broke off in the middle: the sandbox, the daemon or the connection ended (${(error as Error).message})`
    const broken = new Unavailable(text, { code: 'unavailable', cause: error })
    lostAnswers.add(broken)
    return broken
  }

  /** Returns the error that says why a sandbox is gone, or undefined if it is there or nothing is known. */
  private async whySandboxEnded(ref: string): Promise<RametError | undefined> {
    try {
      const request: Request = { method: 'GET', path: `/v1/sandboxes/${segment(ref)}`, accept: 'application/json', signal: AbortSignal.timeout(2_000) }
      const answer = await this.once(request, undefined, false)
      const parts: Buffer[] = []
      for await (const part of answer) parts.push(part as Buffer)
      const info = JSON.parse(Buffer.concat(parts).toString()) as { state?: string; reason?: string }
      if (info.state !== 'failed') return undefined
      return errorOf({ code: 'sandbox_died', detail: `sandbox ${ref} failed: ${info.reason ?? 'for an unknown reason'}` })
    } catch (error) {
      if (!(error instanceof RametError) || error.code !== 'not_found') return undefined
      return new SandboxGone(`sandbox ${ref} was destroyed meanwhile`, { code: 'not_found', status: 404 })
    }
  }
}

function isStream(body: Request['body']): boolean {
  return body !== undefined && !(body instanceof Uint8Array)
}

/** Sends a body as it comes, and no faster than it is taken. */
async function feed(outgoing: ClientRequest, body: AsyncIterable<Uint8Array>): Promise<void> {
  const closed = new Promise<false>((resolve) => outgoing.once('close', () => resolve(false)))
  for await (const part of body) {
    if (outgoing.destroyed || outgoing.writableEnded) return
    if (part.length > 0 && !outgoing.write(part)) {
      const drained = new Promise<true>((resolve) => outgoing.once('drain', () => resolve(true)))
      if (!(await Promise.race([drained, closed]))) return
    }
  }
  if (!outgoing.destroyed) outgoing.end()
}

function bindConnectTimeout(outgoing: ClientRequest): void {
  outgoing.once('socket', (socket) => {
    if (!socket.connecting) return
    const timer = setTimeout(() => {
      outgoing.destroy(Object.assign(new Error(`no connection within ${connectTimeout} ms`), { code: 'ETIMEDOUT' }))
    }, connectTimeout)
    socket.once('connect', () => clearTimeout(timer))
    socket.once('close', () => clearTimeout(timer))
  })
}

export function queryText(query: Query | undefined): string {
  const params = new URLSearchParams()
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined || value === false) continue
    if (Array.isArray(value)) for (const item of value as string[]) params.append(name, item)
    else params.append(name, String(value))
  }
  const text = params.toString()
  return text === '' ? '' : `?${text}`
}

// The errors of answers that were lost with their connection.
const lostAnswers = new WeakSet<object>()

/** Reports whether an error says that an answer was lost with its connection, so that asking again may help. */
export function wasLost(error: unknown): boolean {
  return typeof error === 'object' && error !== null && lostAnswers.has(error)
}

// The errors of requests that were not sent.
const unsent = new WeakSet<object>()

// The errors of daemons that take no new requests, and after how many milliseconds to ask the next one.
const retryAfter = new WeakMap<object, number>()

/** Makes the stack of an error of an answer the one of the call, not that of the connection. */
function fromHere(error: unknown, below: (...args: never[]) => unknown): unknown {
  if (error instanceof RametError) Error.captureStackTrace?.(error, below)
  return error
}

/** Returns the version of the interface that a daemon tells, which is empty if it tells none. */
function interfaceOf(answer: IncomingMessage): string {
  return String(answer.headers['x-ramet-interface'] ?? '')
}

/** Returns the error that is in an answer of failure. One without a problem document was not sent by a daemon. */
async function problemOf(answer: IncomingMessage, sandbox: string | undefined): Promise<RametError> {
  const parts: Buffer[] = []
  let size = 0
  try {
    for await (const part of answer) {
      size += (part as Buffer).length
      if (size > maxProblem) break
      parts.push(part as Buffer)
    }
  } catch {
    // What came is looked at.
  }
  const text = Buffer.concat(parts).toString()
  if ((answer.headers['content-type'] ?? '').split(';')[0]?.trim() === problemType) {
    try {
      const doc = JSON.parse(text) as Problem
      if (typeof doc.code === 'string') {
        const gone = doc.code === 'not_found' && sandbox !== undefined && doc.detail === `no sandbox "${sandbox}"`
        const error = errorOf({ ...doc, status: answer.statusCode ?? 0 }, gone ? SandboxGone : undefined, interfaceOf(answer))
        const after = answer.headers['retry-after']
        if (answer.statusCode === 503 && after !== undefined) retryAfter.set(error, Math.max(Number(after) || 0, 0.05) * 1000)
        return error
      }
    } catch {
      // It is answered below.
    }
  }
  const detail =
    answer.statusCode === 400 && text.includes('HTTPS')
      ? 'there is TLS at that port: try https instead of http'
      : `the answer "${answer.statusCode} ${answer.statusMessage}" is not one of a Ramet daemon`
  return new Unavailable(detail, { code: 'unavailable', status: answer.statusCode, remedy: 'look at RAMET_HOST' })
}

/** Says whether an error is one of a connection, and then whether nobody listens there, so that nothing was sent. */
function connectionFailure(error: unknown): { nobody: boolean } | undefined {
  if (error instanceof RametError || !(error instanceof Error)) return undefined
  const code = (error as NodeJS.ErrnoException).code ?? ''
  if (code === 'ENOENT' || code === 'ECONNREFUSED') return { nobody: true }
  if (/^(ECONNRESET|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|EACCES|ECONNABORTED|ERR_STREAM_PREMATURE_CLOSE|HPE_.*)$/.test(code)) return { nobody: false }
  if (/^(ERR_TLS|ERR_SSL|CERT_|UNABLE_TO|DEPTH_ZERO|SELF_SIGNED|EPROTO)/.test(code)) return { nobody: false }
  return undefined
}

function unavailable(failure: unknown): Unavailable {
  const cause = failure as NodeJS.ErrnoException
  const lost = cause.code === 'ECONNRESET' || cause.code === 'EPIPE'
  const detail = lost
    ? `call daemon: it ended before it had answered, and what it was doing for this call may have ended with it (${cause.message})`
    : `call daemon: ${cause.message}`
  const remedy = /CERT|SIGNED|UNABLE_TO/.test(cause.code ?? '') ? 'name the certificate of the daemon in RAMET_CA' : undefined
  const error = new Unavailable(detail, { code: 'unavailable', cause, remedy })
  if (lost) lostAnswers.add(error)
  return error
}
