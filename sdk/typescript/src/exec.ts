import { randomBytes } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { CommandError, errorOf, SandboxGone, Timeout, Unavailable, type Problem } from './errors.js'
import { fromWire } from './models.js'
import { segment, wasLost, type CallOptions, type Request, type Transport } from './transport.js'
import { BrokenOff, finalOf, readFrames } from './wire.js'
import { WebSocketConnection } from './websocket.js'

/** A command: a text for /bin/sh, or a program with its arguments. */
export type Command = string | readonly string[]

/** Bytes for standard input or a file. */
export type Input = string | Uint8Array | Blob | AsyncIterable<string | Uint8Array> | Iterable<Uint8Array>

export interface CommandOptions {
  /** Added to the environment of the sandbox. */
  env?: Record<string, string> | undefined
  /** Absolute path of the directory that it starts in. */
  cwd?: string | undefined
  /** Name or uid, optionally :group. */
  user?: string | undefined
  /** Milliseconds after which it and its process group are killed; no limit if absent. */
  timeout?: number | undefined
}

export interface ExecOptions extends CommandOptions, CallOptions {
  /** Standard input: a text, bytes, or a stream of them. */
  stdin?: Input | undefined
  /** Throw CommandError if the exit code is not 0. */
  check?: boolean | undefined
  /** Called with standard output as it comes. The result has none then. */
  onStdout?: ((text: string) => void | Promise<void>) | undefined
  /** Called with standard error as it comes. The result has none then. */
  onStderr?: ((text: string) => void | Promise<void>) | undefined
}

/** How a command ended. */
export interface Result {
  /** Standard output, all of it; empty if it was streamed. */
  readonly stdout: string
  readonly stderr: string
  /** 128+N if signal N ended it. */
  readonly exitCode: number
  /** The exit code is 0. */
  readonly ok: boolean
  /** The signal that ended it, or empty. */
  readonly signal: string
  readonly durationMs: number
}

/** A piece of output. */
export interface Output {
  readonly stream: 'stdout' | 'stderr'
  readonly data: Uint8Array
  /** The data as text. A character that lies in two pieces is in the second one. */
  readonly text: string
}

interface WireResult extends Result {
  timedOut?: boolean
}

/** The body of a request that names a command. */
export function commandBody(command: Command, options: CommandOptions): Record<string, unknown> {
  return {
    ...(typeof command === 'string' ? { shell: command } : { argv: command }),
    env: options.env,
    cwd: options.cwd,
    user: options.user,
    timeout_ms: options.timeout,
  }
}

/** Yields an input in pieces. */
export async function* pieces(input: Input): AsyncGenerator<Uint8Array, void, undefined> {
  if (typeof input === 'string') yield Buffer.from(input)
  else if (input instanceof Uint8Array) yield input
  else if (input instanceof Blob) yield* input.stream() as unknown as AsyncIterable<Uint8Array>
  else for await (const piece of input) yield typeof piece === 'string' ? Buffer.from(piece) : piece
}

/** Runs a command to its end. */
export async function exec(transport: Transport, sandbox: string, command: Command, options: ExecOptions): Promise<Result> {
  const { onStdout, onStderr } = options
  const stream = new ExecStream(transport, sandbox, command, options)
  const kept = { stdout: [] as string[], stderr: [] as string[] }
  let timedOut = false
  for await (const { stream: name, text } of stream) {
    if (text === '') continue
    const each = name === 'stdout' ? onStdout : onStderr
    if (each) await each(text)
    else kept[name].push(text)
  }
  const ended = await stream.result.catch((error: unknown) => {
    if (!(error instanceof Timeout)) throw error
    timedOut = true
    return error.result as Result
  })
  const result = { ...ended, stdout: kept.stdout.join(''), stderr: kept.stderr.join('') }
  if (timedOut) throw timeoutOf(result, options.timeout)
  if (options.check && !result.ok) throw new CommandError(command, result)
  return result
}

function timeoutOf(result: Result, timeout: number | undefined): Timeout {
  return new Timeout(`the command and its process group were killed after ${timeout} ms`, { result, remedy: 'give it more time with timeout' })
}

/**
 * A command whose output is read while it runs, with `for await`. The command runs no faster than its output is read.
 * Leaving the loop early kills it.
 */
export class ExecStream implements AsyncIterable<Output>, AsyncDisposable {
  private readonly source: AsyncGenerator<Output, Result, undefined>
  private readonly ended: Promise<Result>
  private settle!: { resolve: (result: Result) => void; reject: (error: unknown) => void }
  private taken = false

  constructor(transport: Transport, sandbox: string, command: Command, options: ExecOptions) {
    this.ended = new Promise((resolve, reject) => (this.settle = { resolve, reject }))
    this.ended.catch(() => undefined) // it is thrown where the output is read
    const { stdin } = options
    const request: Request = {
      method: 'POST',
      path: `/v1/sandboxes/${segment(sandbox)}/exec`,
      signal: options.signal,
      sandbox,
    }
    const body = commandBody(command, options)
    this.source =
      stdin === undefined || typeof stdin === 'string'
        ? overFrames(transport, { ...request, json: { ...body, stdin } }, options.timeout)
        : overWebSocket(transport, { ...request, method: 'GET' }, body, stdin, options.timeout)
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Output, void, undefined> {
    this.taken = true
    let finished = false
    try {
      for (;;) {
        const next = await this.source.next()
        if (next.done) {
          finished = true
          this.settle.resolve(next.value)
          return
        }
        yield next.value
      }
    } catch (error) {
      finished = true
      this.settle.reject(error)
      // That a command met its time limit is said by the result.
      if (!(error instanceof Timeout && error.result)) throw error
    } finally {
      if (!finished) {
        this.settle.reject(errorOf({ code: 'canceled', detail: 'the output was not read to its end, and the command was killed' }))
        await this.source.return(undefined as unknown as Result)
      }
    }
  }

  /** How the command ended, without its output. If nobody reads the output, it is dropped. */
  get result(): Promise<Result> {
    if (!this.taken) void this.drain()
    return this.ended
  }

  private async drain(): Promise<void> {
    try {
      for await (const _ of this);
    } catch {
      // The result has it.
    }
  }

  /** Kills the command if it runs. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.taken = true
    await this.source.return(undefined as unknown as Result)
    this.settle.reject(errorOf({ code: 'canceled', detail: 'the command was killed' }))
  }
}

/** Decodes the two streams of output. */
function decoders(): (stream: 'stdout' | 'stderr', data: Uint8Array) => Output {
  const of = { stdout: new TextDecoder(), stderr: new TextDecoder() }
  return (stream, data) => ({ stream, data, text: of[stream].decode(data, { stream: true }) })
}

function endOf(final: Record<string, unknown>, timeout: number | undefined): Result {
  if (final['error']) throw errorOf(final['error'] as Problem)
  const { timedOut, ...result } = fromWire<WireResult>(final['exit'])
  if (timedOut) throw timeoutOf(result, timeout)
  return result
}

// A command goes on for 30 s without a daemon. For so many milliseconds the next daemon is looked for: one that said that it is about
// to end is usually replaced, and one that was killed is not.
const replacedWithin = 20_000
const killedWithin = 1_500
const askEvery = 200
// So often in a minute a connection may be lost.
const mostLosses = 5

async function* overFrames(transport: Transport, request: Request, timeout: number | undefined): AsyncGenerator<Output, Result, undefined> {
  const decode = decoders()
  const asked = request.json as Record<string, unknown>
  const resumable = asked['stdin'] === undefined
  const body = { ...asked, ...(resumable ? { key: randomBytes(16).toString('hex') } : {}) }
  let from: number | undefined // of the output that is asked for; undefined to begin the command
  let read = 0
  let first: unknown // the error by which the connection was lost
  let [until, lossesSince, losses] = [0, 0, 0]
  for (;;) {
    let complete = false
    let answer: IncomingMessage | undefined
    try {
      answer = await transport.send({ ...request, json: { ...body, from }, accept: 'application/vnd.ramet.frames' })
      for await (const frame of readFrames(answer.iterator({ destroyOnReturn: false }))) {
        first = undefined
        if ('final' in frame) {
          complete = true
          return endOf(frame.final, timeout)
        }
        read += frame.data.length
        yield decode(frame.stream, frame.data)
      }
    } catch (error) {
      const broken = await transport.broken(request, error)
      // A daemon that is about to end says so in the last frame.
      const again = first === undefined ? wasLost(broken) || (complete && broken instanceof Unavailable) : broken instanceof Unavailable
      const now = Date.now()
      const pause = first === undefined ? 20 : askEvery
      if (first === undefined) {
        first = broken
        until = now + (complete ? replacedWithin : killedWithin)
        if (now - lossesSince > 60_000) [lossesSince, losses] = [now, 0]
        losses++
      }
      if (!resumable || !again || now > until || losses > mostLosses) {
        // When the next daemon does not know the command, the error is the one of the connection.
        throw broken instanceof SandboxGone && broken.code === 'sandbox_died' ? broken : first
      }
      from = read
      await delay(pause)
      if (request.signal?.aborted) throw request.signal.reason
    } finally {
      if (complete) answer?.resume() // then the connection can be used again
      else answer?.destroy()
    }
  }
}

// A message of the client has at most 1 MiB.
const maxPiece = 64 << 10

async function* overWebSocket(
  transport: Transport,
  request: Request,
  body: Record<string, unknown>,
  stdin: Exclude<Input, string>,
  timeout: number | undefined,
): AsyncGenerator<Output, Result, undefined> {
  const socket = await WebSocketConnection.open(transport, request)
  await socket.send(JSON.stringify(body))
  let failed: { error: unknown } | undefined
  sendInput(socket, stdin).catch((error: unknown) => {
    failed = { error }
    socket.destroy()
  })
  const decode = decoders()
  try {
    for await (const message of socket.messages()) {
      if (typeof message === 'string') return endOf(finalOf(message), timeout)
      if (message[0] !== 1 && message[0] !== 2) throw new BrokenOff(`a message is of stream ${message[0]}`)
      yield decode(message[0] === 1 ? 'stdout' : 'stderr', message.subarray(1))
    }
    throw new BrokenOff('the connection ended before the last message')
  } catch (error) {
    if (failed) throw failed.error
    throw await transport.broken(request, error)
  } finally {
    socket.destroy()
  }
}

/** Sends standard input and its end. */
export async function sendInput(socket: WebSocketConnection, input: Input): Promise<void> {
  for await (const piece of pieces(input)) {
    for (let at = 0; at < piece.length; at += maxPiece) {
      const part = piece.subarray(at, at + maxPiece)
      const message = new Uint8Array(part.length + 1)
      message.set(part, 1)
      await socket.send(message)
    }
  }
  await socket.send(new Uint8Array(1))
}
