import { BaseSandbox, type ExecuteResponse, type FileDownloadResponse, type FileOperationError, type FileUploadResponse } from 'deepagents'
import { NotFound, PermissionDenied, RametError, SandboxGone } from '../errors.js'
import type { ForkOptions, Sandbox } from '../sandbox.js'
import type { ChangeOptions } from '../transport.js'
import { createWrapped, endOwned, forkAll, merged, outputLimit, runBounded, type AdapterCreateOptions, type AdapterOptions, type Forks, type OwnedSandbox } from './adapter.js'

export type { Forks } from './adapter.js'

export interface RametSandboxOptions extends AdapterOptions {
  /** Milliseconds after which a command is killed; 30 minutes if absent, 0 for no limit. */
  timeout?: number | undefined
}

export interface RametSandboxCreateOptions extends AdapterCreateOptions, RametSandboxOptions {
  /** Files that it begins with, by absolute path. */
  initialFiles?: Record<string, string | Uint8Array> | undefined
}

const defaultTimeout = 30 * 60_000
const defaultOutput = 1 << 20

/**
 * A sandbox as a backend of deepagents: `createDeepAgent({ model, backend: await RametSandbox.create() })`. `fork` gives backends
 * whose sandboxes have all of this running one, for agents that try several ways at once.
 */
export class RametSandbox extends BaseSandbox implements AsyncDisposable {
  private readonly owned: OwnedSandbox
  private readonly options: RametSandboxOptions
  private readonly limit: number
  private running = true

  /** Wraps a sandbox that exists. */
  constructor(sandbox: Sandbox | OwnedSandbox, options: RametSandboxOptions = {}) {
    super()
    this.owned = 'sandbox' in sandbox ? sandbox : { sandbox, own: undefined }
    this.options = options
    this.limit = outputLimit(options, defaultOutput)
  }

  /** Makes a sandbox, of the image `python` if none is named. It ends with `close`, or a minute after this program. */
  static async create(options: RametSandboxCreateOptions = {}): Promise<RametSandbox> {
    const { initialFiles = {}, ...rest } = options
    const { cwd, user, timeout, maxOutput } = options
    return createWrapped('deepagents', rest, async (owned) => {
      const backend = new RametSandbox(owned, { cwd, user, timeout, maxOutput })
      for (const [path, content] of Object.entries(initialFiles)) await owned.sandbox.files.write(path, content, { user })
      return backend
    })
  }

  /** The sandbox itself, for all else: snapshots, code, ports, comparisons. */
  get sandbox(): Sandbox {
    return this.owned.sandbox
  }

  get id(): string {
    return this.sandbox.id
  }

  /** Whether it was not closed. */
  get isRunning(): boolean {
    return this.running
  }

  /** Runs a command in a shell. Standard output and error are in the order in which they were written; a command whose time is over has the exit code 124. */
  async execute(command: string): Promise<ExecuteResponse> {
    const { cwd, env, user, timeout = defaultTimeout } = this.options
    const ran = await runBounded(this.sandbox, merged(command), { cwd, env, user, timeout: timeout || undefined }, this.limit)
    const why = ran.timedOut === undefined ? '' : `\n[${ran.timedOut}]\n`
    return { output: String(ran.stdout) + why, exitCode: ran.exitCode, truncated: ran.stdout.truncated }
  }

  /** Writes files, and the directories above them. One that cannot be written does not keep the others from it. */
  async uploadFiles(files: [string, Uint8Array][]): Promise<FileUploadResponse[]> {
    return each(files, async ([path, content]) => {
      const error = await this.failure(path, () => this.sandbox.files.write(path, content, { user: this.options.user }))
      return { path, error }
    })
  }

  /** Reads files. One that cannot be read does not keep the others from it. */
  async downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
    return each(paths, async (path) => {
      let content: Uint8Array | null = null
      const error = await this.failure(path, async () => (content = await this.sandbox.files.readBytes(path, { user: this.options.user })))
      return { path, content: error === null ? content : null, error }
    })
  }

  /** Does something with a file, and returns the word of the protocol for what is wrong with it. */
  private async failure(path: string, act: () => Promise<unknown>): Promise<FileOperationError | null> {
    if (!path.startsWith('/')) return 'invalid_path'
    try {
      await act()
      return null
    } catch (error) {
      if (!(error instanceof RametError) || error instanceof SandboxGone) throw error
      if (error instanceof NotFound) return 'file_not_found'
      if (error instanceof PermissionDenied && error.code === 'permission_denied') return 'permission_denied'
      if (error.code === 'invalid_argument') return 'invalid_path'
      if (error.code !== 'unsupported') throw error // of what is no regular file nothing is read or written
      const found = await this.sandbox.files.stat(path, { user: this.options.user })
      return found.type === 'dir' ? 'is_directory' : 'invalid_path'
    }
  }

  /** Makes children that have all of this running sandbox: files, memory and processes. */
  async fork(options: number | ForkOptions = 1): Promise<Forks<RametSandbox>> {
    return forkAll(this.sandbox, options, (child) => new RametSandbox(child, this.options))
  }

  /** Goes on with the state of a child, which is gone then. */
  async promote(child: RametSandbox, options: ChangeOptions = {}): Promise<void> {
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

// How many files are under way at once.
const width = 8

/** Does something with each of a list, a few at once, and returns what comes of it in their order. */
async function each<T, R>(list: readonly T[], act: (of: T) => Promise<R>): Promise<R[]> {
  const out = new Array<R>(list.length)
  let next = 0
  const work = async (): Promise<void> => {
    for (let at = next++; at < list.length; at = next++) out[at] = await act(list[at] as T)
  }
  await Promise.all(Array.from({ length: Math.min(width, list.length) }, work))
  return out
}
