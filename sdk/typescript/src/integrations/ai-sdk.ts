import { posix } from 'node:path'
import type {
  Experimental_SandboxDirectoryEntry as DirectoryEntry, Experimental_SandboxFileStat as FileStat, Experimental_SandboxProcess as SessionProcess,
  Experimental_SandboxSession as SandboxSession,
} from 'ai'
import { InvalidRequest, NotFound, SandboxGone } from '../errors.js'
import type { Process } from '../processes.js'
import type { ForkOptions, Sandbox } from '../sandbox.js'
import type { CallOptions, ChangeOptions } from '../transport.js'
import { createWrapped, endOwned, forkAll, outputLimit, runBounded, type AdapterCreateOptions, type AdapterOptions, type Forks, type OwnedSandbox } from './adapter.js'

export type { Forks } from './adapter.js'

export interface RametSessionOptions extends AdapterOptions {
  /** Where commands start, and what relative paths are relative to; `/` if absent. */
  cwd?: string | undefined
  /** Milliseconds after which a command of `run` is killed; no limit if absent, as the AI SDK has its own timeouts. */
  timeout?: number | undefined
}

export interface RametSessionCreateOptions extends AdapterCreateOptions, RametSessionOptions {}

interface RunOptions {
  command: string
  workingDirectory?: string
  env?: Record<string, string>
  abortSignal?: AbortSignal
}

interface PathOptions {
  path: string
  abortSignal?: AbortSignal
}

type WritableProcess = SessionProcess & { readonly stdin: WritableStream<Uint8Array> }

const defaultOutput = 1 << 20

// How much of what a spawned process writes is kept until it is read, in KiB: what the daemon allows.
const keepKib = 16_384

/**
 * A sandbox as a session of the AI SDK: `generateText({ experimental_sandbox: await RametSession.create(), … })`. `fork` gives
 * sessions whose sandboxes have all of this running one.
 */
export class RametSession implements SandboxSession, AsyncDisposable {
  private readonly owned: OwnedSandbox
  private readonly options: RametSessionOptions
  private readonly limit: number
  private readonly base: string
  private running = true

  /** Wraps a sandbox that exists. */
  constructor(sandbox: Sandbox | OwnedSandbox, options: RametSessionOptions = {}) {
    this.owned = 'sandbox' in sandbox ? sandbox : { sandbox, own: undefined }
    this.options = options
    this.limit = outputLimit(options, defaultOutput)
    this.base = options.cwd ?? '/'
    if (!this.base.startsWith('/')) throw new InvalidRequest(`${JSON.stringify(this.base)} is not an absolute path`, { code: 'invalid_argument', field: 'cwd' })
  }

  /** Makes a sandbox, of the image `python` if none is named. It ends with `close`, or a minute after this program. */
  static async create(options: RametSessionCreateOptions = {}): Promise<RametSession> {
    const { cwd, user, timeout, maxOutput } = options
    return createWrapped('ai-sdk', options, async (owned) => {
      const session = new RametSession(owned, { cwd, user, timeout, maxOutput })
      if (session.base !== '/') await session.sandbox.files.mkdir(session.base)
      return session
    })
  }

  /** The sandbox itself, for all else: snapshots, code, ports, comparisons. */
  get sandbox(): Sandbox {
    return this.owned.sandbox
  }

  get description(): string {
    const { name, image } = this.sandbox.lastInfo
    const what = [`Linux sandbox ${name || this.sandbox.id}`, image && `of the image ${image}`].filter(Boolean).join(' ')
    return `${what}. Commands run in /bin/sh and start in ${this.base}, which relative paths are relative to. Its files, processes and memory are its own.`
  }

  private at(path: string): string {
    return posix.resolve(this.base, path)
  }

  private call({ abortSignal }: { abortSignal?: AbortSignal }): CallOptions & { user: string | undefined } {
    return { user: this.options.user, signal: abortSignal }
  }

  private command({ workingDirectory, env, abortSignal }: RunOptions) {
    return { ...this.call({ ...(abortSignal && { abortSignal }) }), cwd: this.at(workingDirectory ?? ''), env: { ...this.options.env, ...env } }
  }

  /** Runs a command in a shell. One that is aborted is killed with its process group. */
  run = async (options: RunOptions): Promise<{ exitCode: number; stdout: string; stderr: string }> => {
    const ran = await runBounded(this.sandbox, options.command, { ...this.command(options), timeout: this.options.timeout }, this.limit)
    const why = ran.timedOut === undefined ? '' : `\n[${ran.timedOut}]\n`
    return { exitCode: ran.exitCode, stdout: String(ran.stdout), stderr: String(ran.stderr) + why }
  }

  /** Starts a process that goes on by itself. Of what it writes the last 16 MiB are kept for slow readers. */
  spawn = (async (options: RunOptions & { stdin?: boolean }): Promise<SessionProcess | WritableProcess> => {
    const { abortSignal, stdin } = options
    const process = await this.sandbox.exec(options.command, { ...this.command(options), background: true, stdin: stdin ?? false, keepKib })
    return sessionProcess(process, stdin ?? false, abortSignal)
  }) as SandboxSession['spawn']

  readFile = async (options: PathOptions): Promise<ReadableStream<Uint8Array> | null> => {
    const path = this.at(options.path)
    if ((await orNull(this.sandbox.files.stat(path, this.call(options)))) === null) return null
    return streamOf(this.sandbox.files.readStream(path, this.call(options)))
  }

  readBinaryFile = (options: PathOptions): Promise<Uint8Array | null> => orNull(this.sandbox.files.readBytes(this.at(options.path), this.call(options)))

  readTextFile = async (options: PathOptions & { encoding?: string; startLine?: number; endLine?: number }): Promise<string | null> => {
    const bytes = await this.readBinaryFile(options)
    if (bytes === null) return null
    const { encoding = 'utf-8', startLine = 1, endLine } = options
    const text = new TextDecoder(encoding).decode(bytes)
    if (startLine <= 1 && endLine === undefined) return text
    const ending = /\r\n|\n|\r/.exec(text)?.[0] ?? '\n'
    return text.split(ending).slice(Math.max(startLine, 1) - 1, endLine).join(ending)
  }

  writeFile = async (options: PathOptions & { content: ReadableStream<Uint8Array> }): Promise<void> => {
    await this.sandbox.files.write(this.at(options.path), options.content as unknown as AsyncIterable<Uint8Array>, this.call(options))
  }

  writeBinaryFile = async (options: PathOptions & { content: Uint8Array }): Promise<void> => {
    await this.sandbox.files.write(this.at(options.path), options.content, this.call(options))
  }

  writeTextFile = async (options: PathOptions & { content: string; encoding?: string }): Promise<void> => {
    const { encoding = 'utf-8', content } = options
    if (!Buffer.isEncoding(encoding)) throw new InvalidRequest(`${JSON.stringify(encoding)} is no encoding of Node`, { code: 'invalid_argument', field: 'encoding' })
    await this.writeBinaryFile({ ...options, content: Buffer.from(content, encoding) })
  }

  stat = async (options: PathOptions): Promise<FileStat | null> => {
    const found = await orNull(this.sandbox.files.stat(this.at(options.path), this.call(options)))
    return found && { type: found.type === 'file' ? 'file' : found.type === 'dir' ? 'directory' : 'other', size: found.size }
  }

  listDirectory = async (options: PathOptions): Promise<DirectoryEntry[] | null> => {
    const found = await orNull(this.sandbox.files.list(this.at(options.path), this.call(options)))
    return found && found.map(({ path, type }) => ({ name: posix.basename(path), type: entryTypes[type] ?? 'other' }))
  }

  deleteFile = async (options: PathOptions): Promise<boolean> => {
    const [path, call] = [this.at(options.path), this.call(options)]
    const found = await orNull(this.sandbox.files.stat(path, { ...call, noFollow: true }))
    if (found === null) return false
    if (found.type === 'dir') throw new InvalidRequest(`${JSON.stringify(path)} is a directory`, { code: 'invalid_argument', field: 'path' })
    return (await orNull(this.sandbox.files.remove(path, call).then(() => true))) ?? false
  }

  /** Makes children that have all of this running sandbox: files, memory and processes. */
  async fork(options: number | ForkOptions = 1): Promise<Forks<RametSession>> {
    return forkAll(this.sandbox, options, (child) => new RametSession(child, this.options))
  }

  /** Goes on with the state of a child, which is gone then. */
  async promote(child: RametSession, options: ChangeOptions = {}): Promise<void> {
    await this.sandbox.promote(child.sandbox, options)
    child.running = false
  }

  /** Destroys the sandbox if it was made through this program; one that `create` made with all of its children. */
  async close(): Promise<void> {
    if (!this.running) return
    this.running = false
    await endOwned(this.owned)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

const entryTypes: Record<string, DirectoryEntry['type']> = { file: 'file', dir: 'directory', symlink: 'symlink' }

/** Returns null in place of the error that there is no such file. */
async function orNull<T>(found: Promise<T>): Promise<T | null> {
  try {
    return await found
  } catch (error) {
    if (error instanceof NotFound && !(error instanceof SandboxGone)) return null
    throw error
  }
}

/** Returns a stream that is read as it is pulled. Cancelling it does not wait for the next piece if there is something to abort. */
function streamOf(source: AsyncGenerator<Uint8Array, unknown, undefined>, stop?: AbortController): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { value, done } = await source.next()
        if (done) controller.close()
        else controller.enqueue(value)
      },
      async cancel() {
        stop?.abort()
        await source.return(undefined).catch(() => undefined)
      },
    },
    { highWaterMark: 0 },
  )
}

/** Returns a stream of what a process writes, which is read from what is kept at its own pace. */
function outputOf(process: Process, wanted: 'stdout' | 'stderr'): ReadableStream<Uint8Array> {
  const stop = new AbortController()
  const source = async function* (): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const { stream, data } of process.output({ follow: true, signal: stop.signal })) if (stream === wanted && data.length > 0) yield data
  }
  return streamOf(source(), stop)
}

/** Returns a process as the AI SDK holds it. */
function sessionProcess(process: Process, stdin: boolean, abortSignal: AbortSignal | undefined): SessionProcess | WritableProcess {
  let ended: Promise<{ exitCode: number }> | undefined
  const kill = async (): Promise<void> => {
    await process.kill().catch((error: unknown) => {
      if (!(error instanceof NotFound)) throw error // it has ended
    })
  }
  const wait = async (): Promise<{ exitCode: number }> => {
    const { exitCode } = await process.wait()
    abortSignal?.throwIfAborted()
    return { exitCode }
  }
  const end = (): Promise<{ exitCode: number }> => (ended ??= wait())
  if (abortSignal) {
    const abort = (): void => void kill().catch(() => undefined)
    if (abortSignal.aborted) abort()
    abortSignal.addEventListener('abort', abort, { once: true })
    // The signal may live longer than many processes.
    end().catch(() => undefined).finally(() => abortSignal.removeEventListener('abort', abort))
  }
  const handle = { pid: process.pid, stdout: outputOf(process, 'stdout'), stderr: outputOf(process, 'stderr'), wait: end, kill }
  if (!stdin) return handle
  const input = new WritableStream<Uint8Array>({
    write: (piece) => process.write(piece),
    close: () => process.closeStdin(),
    abort: () => process.closeStdin(),
  })
  return { ...handle, stdin: input }
}
