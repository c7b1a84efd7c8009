import { commandBody, pieces, sendInput, type Command, type CommandOptions, type Input, type Output, type Result } from './exec.js'
import { errorOf, type Problem } from './errors.js'
import { fromWire, type Position, type ProcessInfo } from './models.js'
import { segment, wasLost, type CallOptions, type Query, type Request, type Transport } from './transport.js'
import { BrokenOff, chunkBytes } from './wire.js'
import { WebSocketConnection } from './websocket.js'

/** A piece of kept output. */
export interface KeptOutput extends Output {
  /** How many bytes of both streams came before. */
  readonly seq: number
  /** So many bytes before this piece are not kept any more; 0 but for the first piece and slow readers. */
  readonly lost: number
}

export interface StartOptions extends CommandOptions, CallOptions {
  /** Keep standard input open for `write`; else it is /dev/null. */
  stdin?: boolean | undefined
  /** Milliseconds without output or input after which it is killed. */
  idleTimeout?: number | undefined
  /** How much of the end of its output is kept, in KiB; 1024 if absent. */
  keepKib?: number | undefined
}

export interface PtyOptions extends CommandOptions, CallOptions {
  /** What runs in the terminal; bash, or else sh, if absent. */
  command?: Command | undefined
  cols?: number | undefined
  rows?: number | undefined
  idleTimeout?: number | undefined
}

export interface OutputOptions extends CallOptions {
  /** Sequence number of the first byte; -1 for output from now on; the oldest byte that is kept if absent. */
  from?: number | undefined
  /** Go on until the process ends. */
  follow?: boolean | undefined
}

export interface SignalOptions extends CallOptions {
  /** To all processes of its group. */
  group?: boolean | undefined
}

/** A process in a sandbox. */
export class Process {
  /** @internal */
  constructor(
    /** @internal */ protected readonly transport: Transport,
    /** @internal */ protected readonly sandbox: string,
    /** As it was when it was asked for. */
    readonly info: ProcessInfo,
  ) {}

  get pid(): number {
    return this.info.pid
  }

  /** As it was when it was asked for, for `JSON.stringify`. */
  toJSON(): ProcessInfo {
    return this.info
  }

  /** @internal */
  protected request(method: Request['method'], rest: string, options: CallOptions, query?: Query): Request {
    return { method, path: `/v1/sandboxes/${segment(this.sandbox)}/processes/${this.pid}${rest}`, query, signal: options.signal, sandbox: this.sandbox }
  }

  /** Waits for its end. Only for processes that were started through Ramet. */
  async wait(options: CallOptions = {}): Promise<Result> {
    return this.transport.call<Result>(this.request('GET', '/wait', options))
  }

  /**
   * Yields its kept output, and with `follow` goes on until it ends, also over a lost connection. What the generator returns says how
   * the process ended, and where to read on.
   */
  async *output(options: OutputOptions = {}): AsyncGenerator<KeptOutput, Position, undefined> {
    const { follow } = options
    let { from } = options
    const decode = { stdout: new TextDecoder(), stderr: new TextDecoder() }
    for (let lost = 0, missing = 0; ; ) {
      const request = this.request('GET', '/output', options, { from, follow })
      try {
        for await (const event of this.transport.events(request)) {
          if (event.name === 'position') return fromWire<Position>(event.data)
          if (event.name === 'lost') missing += (event.data as { bytes: number }).bytes
          if (event.name !== 'stdout' && event.name !== 'stderr') continue
          lost = 0
          const chunk = event.data as { data: string; encoding: string; seq: number }
          const data = chunkBytes(chunk)
          from = chunk.seq + data.length
          yield { stream: event.name, data, text: decode[event.name].decode(data, { stream: true }), seq: chunk.seq, lost: missing }
          missing = 0
        }
        throw await this.transport.broken(request, new BrokenOff('the stream ended before the last event'))
      } catch (error) {
        if (!wasLost(error) || from === undefined || lost++ >= 2) throw error
      }
    }
  }

  /** Returns the kept output as text. */
  async logs(options: CallOptions = {}): Promise<{ stdout: string; stderr: string }> {
    const kept = { stdout: '', stderr: '' }
    for await (const { stream, text } of this.output(options)) kept[stream] += text
    return kept
  }

  /** Writes to its standard input or terminal, and waits until it has room for all. */
  async write(input: Input, options: CallOptions & { end?: boolean | undefined } = {}): Promise<void> {
    for await (const piece of pieces(input)) {
      for (let at = 0; at < piece.length; at += maxWrite) {
        await this.transport.call({ ...this.request('POST', '/stdin', options), body: piece.subarray(at, at + maxWrite), accept: 'application/json' })
      }
    }
    if (options.end) await this.closeStdin(options)
  }

  /** Closes its standard input. */
  async closeStdin(options: CallOptions = {}): Promise<void> {
    await this.transport.call({ ...this.request('POST', '/stdin', options, { end: true }), body: new Uint8Array(0) })
  }

  /** Sends a signal, by name or number. */
  async signal(signal: string | number, options: SignalOptions = {}): Promise<void> {
    await this.transport.call({ ...this.request('POST', '/signal', options), json: { signal: String(signal), group: options.group } })
  }

  /** Kills it with its process group. */
  async kill(options: CallOptions = {}): Promise<void> {
    await this.signal('KILL', { ...options, group: true })
  }

  /** Kills it if it runs, and drops its output. */
  async remove(options: CallOptions = {}): Promise<void> {
    await this.transport.call(this.request('DELETE', '', options))
  }

  /** Attaches to it over a WebSocket: a terminal, or a process with an open standard input. */
  async attach(options: OutputOptions = {}): Promise<Attachment> {
    const request = this.request('GET', '/attach', options, { from: options.from ?? 0 })
    return new Attachment(this, await WebSocketConnection.open(this.transport, request), this.transport, request)
  }
}

// The daemon takes 8 MiB at once.
const maxWrite = 4 << 20

/** A connection to a process: its output is iterated, and what is written is its input. The process goes on without it. */
export class Attachment implements AsyncIterable<KeptOutput>, AsyncDisposable {
  private position: Position | undefined

  /** @internal */
  constructor(
    readonly process: Process,
    private readonly socket: WebSocketConnection,
    private readonly transport: Transport,
    private readonly request: Request,
  ) {}

  get pid(): number {
    return this.process.pid
  }

  /** Its process, for `JSON.stringify`. */
  toJSON(): ProcessInfo {
    return this.process.info
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<KeptOutput, void, undefined> {
    const decode = { stdout: new TextDecoder(), stderr: new TextDecoder() }
    let lost = 0
    for await (const message of this.socket.messages()) {
      if (typeof message === 'string') {
        const doc = JSON.parse(message) as { lost?: { bytes: number }; position?: unknown; error?: Problem }
        if (doc.error) throw errorOf(doc.error)
        if (doc.position) {
          this.position = fromWire<Position>(doc.position)
          return
        }
        lost = doc.lost?.bytes ?? 0
        continue
      }
      if (message.length < 17 || (message[0] !== 1 && message[0] !== 2)) throw await this.transport.broken(this.request, new BrokenOff('a message is no output'))
      const stream = message[0] === 1 ? 'stdout' : 'stderr'
      const data = message.subarray(17)
      const seq = Number(new DataView(message.buffer, message.byteOffset + 1, 8).getBigUint64(0))
      yield { stream, data, text: decode[stream].decode(data, { stream: true }), seq, lost }
      lost = 0
    }
  }

  /** Writes to the process. */
  async write(input: string | Uint8Array): Promise<void> {
    const piece = typeof input === 'string' ? Buffer.from(input) : input
    for (let at = 0; at < piece.length; at += 64 << 10) {
      const part = piece.subarray(at, at + (64 << 10))
      const message = new Uint8Array(part.length + 1)
      message.set(part, 1)
      await this.socket.send(message)
    }
  }

  /** Writes a stream to the process, and then the end of input, which a terminal does not have. */
  async pipe(input: Input): Promise<void> {
    await sendInput(this.socket, input)
  }

  /** Sets the size of its terminal. */
  async resize(cols: number, rows: number): Promise<void> {
    await this.socket.send(JSON.stringify({ resize: { cols, rows } }))
  }

  /** Sends it a signal; with `foreground` also to the command that a shell runs in its terminal. */
  async signal(signal: string | number, options: { group?: boolean; foreground?: boolean } = {}): Promise<void> {
    await this.socket.send(JSON.stringify({ signal: { signal: String(signal), ...options } }))
  }

  /** Waits for the end of the process, and drops output that nobody reads. */
  async wait(options: CallOptions = {}): Promise<Result> {
    if (this.position?.exit) return this.position.exit as Result
    return this.process.wait(options)
  }

  /** Leaves the process, which goes on. */
  async detach(): Promise<void> {
    await this.socket.close()
  }

  /** Kills the process. */
  async kill(): Promise<void> {
    await this.process.kill()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.detach()
  }
}

/** The processes of a sandbox. */
export class Processes {
  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly sandbox: string,
  ) {}

  private get path(): string {
    return `/v1/sandboxes/${segment(this.sandbox)}/processes`
  }

  /** Lists the processes that run; with `all` also those that were started here and have ended. */
  async list(options: CallOptions & { all?: boolean | undefined } = {}): Promise<Process[]> {
    const request: Request = { method: 'GET', path: this.path, query: { all: options.all }, signal: options.signal, sandbox: this.sandbox }
    const { items } = await this.transport.call<{ items: ProcessInfo[] }>(request)
    return items.map((info) => new Process(this.transport, this.sandbox, info))
  }

  /** Starts a process that goes on by itself, and of whose output the end is kept. */
  async start(command: Command, options: StartOptions = {}): Promise<Process> {
    return this.startWith(command, { stdin: options.stdin, idle_timeout_ms: options.idleTimeout, keep_kib: options.keepKib }, options)
  }

  private async startWith(command: Command, more: Record<string, unknown>, options: CommandOptions & CallOptions): Promise<Process> {
    const json = { ...commandBody(command, options), ...more }
    const info = await this.transport.call<ProcessInfo>({ method: 'POST', path: this.path, json, signal: options.signal, sandbox: this.sandbox })
    return new Process(this.transport, this.sandbox, info)
  }

  async get(pid: number, options: CallOptions = {}): Promise<Process> {
    const info = await this.transport.call<ProcessInfo>({ method: 'GET', path: `${this.path}/${pid}`, signal: options.signal, sandbox: this.sandbox })
    return new Process(this.transport, this.sandbox, info)
  }

  /** Starts a command in a terminal and attaches to it. */
  async pty(options: PtyOptions = {}): Promise<Attachment> {
    const { command = 'command -v bash >/dev/null && exec bash -i; exec sh -i', cols = 80, rows = 24 } = options
    const process = await this.startWith(command, { terminal: { cols, rows }, idle_timeout_ms: options.idleTimeout }, options)
    return process.attach({ signal: options.signal })
  }
}
