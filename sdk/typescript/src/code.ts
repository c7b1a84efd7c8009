import { errorOf, RametError, Timeout, type Problem } from './errors.js'
import { fromWire, type ContextInfo } from './models.js'
import { pythonLiteral } from './literal.js'
import { segment, type CallOptions, type Transport } from './transport.js'
import { BrokenOff, chunkBytes } from './wire.js'

export type Language = 'python' | 'node' | 'bash'

export interface RunCodeOptions extends CallOptions {
  /** Python if neither it nor a context is given. */
  language?: Language | undefined
  /** Name of a context; with a language, a missing one is created. */
  context?: string | Context | undefined
  /** Milliseconds from the beginning of the cell after which it is interrupted; no limit if absent. */
  timeout?: number | undefined
  /** Throw CodeError if the cell fails. */
  check?: boolean | undefined
  /** Called with standard output as it comes. */
  onStdout?: ((text: string) => void | Promise<void>) | undefined
  /** Called with standard error as it comes. */
  onStderr?: ((text: string) => void | Promise<void>) | undefined
  /** Called with each result that is shown as it comes. */
  onResult?: ((result: RichResult) => void | Promise<void>) | undefined
}

/** The exception that ended a cell. */
export interface ExecutionError {
  /** Class of the exception; ContextDied if the interpreter itself ended. */
  readonly name: string
  readonly value: string
  readonly traceback: string
}

/** Something that a cell showed, in one or more forms: a value of each media type; images are in base64. */
export class RichResult {
  constructor(readonly forms: Readonly<Record<string, unknown>>) {}

  private form(type: string): string | undefined {
    const value = this.forms[type]
    return typeof value === 'string' ? value : undefined
  }
  get text(): string | undefined {
    return this.form('text/plain')
  }
  get html(): string | undefined {
    return this.form('text/html')
  }
  get markdown(): string | undefined {
    return this.form('text/markdown')
  }
  get latex(): string | undefined {
    return this.form('text/latex')
  }
  get svg(): string | undefined {
    return this.form('image/svg+xml')
  }
  get json(): unknown {
    return this.forms['application/json']
  }
  /** The bytes of a PNG image. */
  get png(): Uint8Array | undefined {
    return this.image('image/png')
  }
  /** The bytes of a JPEG image. */
  get jpeg(): Uint8Array | undefined {
    return this.image('image/jpeg')
  }
  private image(type: string): Uint8Array | undefined {
    const value = this.form(type)
    return value === undefined ? undefined : Buffer.from(value, 'base64')
  }
}

/** What a cell did. */
export interface Execution {
  /** Text of the value of the last expression; empty without one. */
  readonly text: string
  /** That value, if it is one of JSON (in Python also a tuple, which becomes an array); else null. */
  readonly value: unknown
  /** All that was shown, in order. */
  readonly results: readonly RichResult[]
  readonly stdout: string
  readonly stderr: string
  /** Null if the cell did not fail. */
  readonly error: ExecutionError | null
  /** The cell did not fail. */
  readonly ok: boolean
  /** Name of the context that ran it. */
  readonly context: string
  readonly executionCount: number
  readonly exitCode: number
  readonly durationMs: number
  readonly truncated?: boolean
}

interface WireExecution {
  result?: string
  results: Record<string, unknown>[] | null
  stdout: string
  stderr: string
  error: ExecutionError | null
  ok: boolean
  context: string
  executionCount: number
  exitCode: number
  durationMs: number
  truncated?: boolean
  timedOut?: boolean
}

/** A cell failed, of a call with `check`. */
export class CodeError extends RametError {
  constructor(readonly execution: Execution) {
    const { error, exitCode } = execution
    super(error ? `${error.name}: ${error.value}` : `the cell ended with exit code ${exitCode}`, { code: 'code_failed' })
  }
}

/** Runs a cell. */
export async function runCode(transport: Transport, sandbox: string, code: string, options: RunCodeOptions): Promise<Execution> {
  const context = options.context instanceof Context ? options.context.name : options.context
  const request = {
    method: 'POST' as const,
    path: `/v1/sandboxes/${segment(sandbox)}/run-code`,
    json: { code, language: options.language ?? (context === undefined ? 'python' : undefined), context, timeout_ms: options.timeout },
    signal: options.signal,
    sandbox,
  }
  const streams = options.onStdout || options.onStderr || options.onResult
  const doc = streams ? await streamed(transport, request, options) : await transport.call<WireExecution>(request)
  const { timedOut, result: text = '', results, ...rest } = doc
  const shown = (results ?? []).map((forms) => new RichResult(forms))
  const execution: Execution = { ...rest, text, results: shown, value: valueOf(text, shown) }
  if (timedOut) {
    throw new Timeout(`the cell was ended after ${options.timeout} ms`, { result: execution, remedy: 'give it more time with timeout' })
  }
  if (options.check && !execution.ok) throw new CodeError(execution)
  return execution
}

/** Runs a cell, and passes on what it writes and shows; what has no function is kept. */
async function streamed(transport: Transport, request: Parameters<Transport['events']>[0], options: RunCodeOptions): Promise<WireExecution> {
  const kept = { stdout: '', stderr: '', results: [] as Record<string, unknown>[] }
  const decode = { stdout: new TextDecoder(), stderr: new TextDecoder() }
  for await (const event of transport.events(request)) {
    switch (event.name) {
      case 'stdout':
      case 'stderr': {
        const text = decode[event.name].decode(chunkBytes(event.data as { data: string; encoding: string }), { stream: true })
        const each = event.name === 'stdout' ? options.onStdout : options.onStderr
        if (each) await each(text)
        else kept[event.name] += text
        break
      }
      case 'result': {
        const forms = event.data as Record<string, unknown>
        if (options.onResult) await options.onResult(new RichResult(forms))
        kept.results.push(forms)
        break
      }
      case 'exit':
        return { ...fromWire<WireExecution>(event.data), ...kept }
    }
  }
  throw await transport.broken(request, new BrokenOff('the stream ended before the last event'))
}

/** Returns the value of the last expression, if it is one of JSON. */
function valueOf(text: string, results: readonly RichResult[]): unknown {
  if (text === '') return null
  const shown = results.findLast((result) => result.text === text)
  if (shown?.json !== undefined) return shown.json
  try {
    return JSON.parse(text)
  } catch {
    return pythonLiteral(text) ?? null
  }
}

export interface ContextOptions extends CallOptions {
  language?: Language | undefined
  /** Generated if absent. */
  name?: string | undefined
  cwd?: string | undefined
  env?: Record<string, string> | undefined
  user?: string | undefined
}

/** A stateful interpreter in a sandbox. */
export class Context {
  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly sandbox: string,
    /** As it was when it was asked for. */
    readonly info: ContextInfo,
  ) {}

  get name(): string {
    return this.info.name
  }
  get language(): Language {
    return this.info.language as Language
  }

  /** As it was when it was asked for, for `JSON.stringify`. */
  toJSON(): ContextInfo {
    return this.info
  }

  private request(method: 'POST' | 'DELETE', rest: string, options: CallOptions) {
    return { method, path: `/v1/sandboxes/${segment(this.sandbox)}/contexts/${segment(this.name)}${rest}`, signal: options.signal, sandbox: this.sandbox }
  }

  /** Runs a cell in it. */
  runCode(code: string, options: Omit<RunCodeOptions, 'context' | 'language'> = {}): Promise<Execution> {
    return runCode(this.transport, this.sandbox, code, { ...options, context: this.name })
  }

  /** Interrupts the running cell, and says whether there was one. */
  async interrupt(options: CallOptions = {}): Promise<boolean> {
    const { interrupted } = await this.transport.call<{ interrupted: boolean }>(this.request('POST', '/interrupt', options))
    return interrupted
  }

  /** Gives it a new interpreter, without the state of the old one. */
  async restart(options: CallOptions = {}): Promise<Context> {
    return new Context(this.transport, this.sandbox, await this.transport.call<ContextInfo>(this.request('POST', '/restart', options)))
  }

  /** Ends it. */
  async destroy(options: CallOptions = {}): Promise<void> {
    await this.transport.call(this.request('DELETE', '', options))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.destroy().catch((error: unknown) => {
      if ((error as { code?: string }).code !== 'not_found') throw error
    })
  }
}

/** The interpreters of a sandbox. */
export class Contexts {
  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly sandbox: string,
  ) {}

  private get path(): string {
    return `/v1/sandboxes/${segment(this.sandbox)}/contexts`
  }

  async create(options: ContextOptions = {}): Promise<Context> {
    const { signal, language = 'python', name, cwd, env, user } = options
    const info = await this.transport.call<ContextInfo>({ method: 'POST', path: this.path, json: { language, name, cwd, env, user }, signal, sandbox: this.sandbox })
    return new Context(this.transport, this.sandbox, info)
  }

  async list(options: CallOptions = {}): Promise<Context[]> {
    const { items } = await this.transport.call<{ items: ContextInfo[] }>({ method: 'GET', path: this.path, signal: options.signal, sandbox: this.sandbox })
    return items.map((info) => new Context(this.transport, this.sandbox, info))
  }

  /** Returns one that exists. */
  async get(name: string, options: CallOptions = {}): Promise<Context> {
    const found = (await this.list(options)).find((context) => context.name === name)
    if (!found) throw errorOf({ code: 'not_found', detail: `no context ${JSON.stringify(name)}`, status: 404 } satisfies Problem)
    return found
  }
}
