import { createReadStream, createWriteStream } from 'node:fs'
import { mkdir, stat as statLocal } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { pieces, type Input } from './exec.js'
import { InvalidRequest, NotFound, SandboxGone } from './errors.js'
import { fromWire, type FileEvent, type FileEvents, type FileInfo, type SearchResult } from './models.js'
import { packDirectory, unpack } from './tar.js'
import { segment, type CallOptions, type Query, type Request, type Transport } from './transport.js'

export interface FileOptions extends CallOptions {
  /** User whose permissions apply: name or uid, optionally :group; root if absent. */
  user?: string | undefined
  /** Do not follow a symbolic link at the path. */
  noFollow?: boolean | undefined
}

export interface WriteOptions extends FileOptions {
  /** Permissions, such as 0o644. */
  mode?: number | undefined
  /** Replace the old file when all bytes have arrived. */
  atomic?: boolean | undefined
  append?: boolean | undefined
  /** Make missing directories above it; true if absent. */
  parents?: boolean | undefined
  /** Only if the file has this ETag, or one of these; '*' for any file. */
  ifMatch?: string | readonly string[] | undefined
  /** Only if the file does not have this ETag; '*': only if there is no file. */
  ifNoneMatch?: string | readonly string[] | undefined
}

export interface ListOptions extends FileOptions {
  /** Levels of directories, 0 for all; 1 if absent. */
  depth?: number | undefined
  /** Only files that match: a pattern without a slash is for names, one with slashes for paths below the directory. */
  glob?: string | undefined
}

export interface SearchOptions extends FileOptions {
  /** Pattern of names. */
  name?: string | undefined
  /** Text that a line must contain. */
  content?: string | undefined
  /** `content` is a regular expression (RE2). */
  regexp?: boolean | undefined
  ignoreCase?: boolean | undefined
  limit?: number | undefined
}

export interface WatchOptions extends FileOptions {
  recursive?: boolean | undefined
  /** How long changes are collected before they are reported, in milliseconds; 50 if absent. */
  debounce?: number | undefined
}

function octal(mode: number | undefined): string | undefined {
  return mode === undefined ? undefined : mode.toString(8)
}

function tags(of: string | readonly string[] | undefined): string | undefined {
  if (of === undefined) return undefined
  return (typeof of === 'string' ? [of] : of).map((tag) => (tag === '*' ? tag : `"${tag}"`)).join(', ')
}

/** The files of a sandbox. Paths are absolute. */
export class Files {
  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly sandbox: string,
  ) {}

  private request(method: Request['method'], rest: string, path: string, options: FileOptions, query: Query = {}): Request {
    return {
      method,
      path: `/v1/sandboxes/${segment(this.sandbox)}/files${rest}`,
      query: { path, user: options.user, no_follow: options.noFollow, ...query },
      signal: options.signal,
      sandbox: this.sandbox,
    }
  }

  /** Reads a file as text in UTF-8. */
  async read(path: string, options: FileOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.readBytes(path, options))
  }

  /** Reads a file. */
  async readBytes(path: string, options: FileOptions = {}): Promise<Uint8Array> {
    const parts: Uint8Array[] = []
    for await (const part of this.readStream(path, options)) parts.push(part)
    return parts.length === 1 ? (parts[0] as Uint8Array) : Buffer.concat(parts)
  }

  /** Reads a file of any size in pieces. */
  readStream(path: string, options: FileOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return this.transport.bytes(this.request('GET', '', path, options))
  }

  /** Writes a file: a text, bytes, or a stream of them, which may have any size. */
  async write(path: string, data: Input, options: WriteOptions = {}): Promise<FileInfo> {
    const query = { mode: octal(options.mode), atomic: options.atomic, append: options.append, parents: options.parents ?? true }
    const headers: Record<string, string> = {}
    const match = tags(options.ifMatch)
    const none = tags(options.ifNoneMatch)
    if (match !== undefined) headers['if-match'] = match
    if (none !== undefined) headers['if-none-match'] = none
    const body = typeof data === 'string' ? Buffer.from(data) : data instanceof Uint8Array ? data : pieces(data)
    const repeatable = !options.append && match === undefined && none === undefined
    return this.transport.call<FileInfo>({ ...this.request('PUT', '', path, options, query), headers, body, repeatable })
  }

  /** Describes a file. */
  async stat(path: string, options: FileOptions = {}): Promise<FileInfo> {
    return this.transport.call<FileInfo>(this.request('GET', '/stat', path, options))
  }

  /** Reports whether there is a file at a path. */
  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options)
      return true
    } catch (error) {
      if (error instanceof NotFound && !(error instanceof SandboxGone)) return false
      throw error
    }
  }

  /** Lists the files in a directory, by name. */
  async list(path = '/', options: ListOptions = {}): Promise<FileInfo[]> {
    const all: FileInfo[] = []
    for await (const file of this.walk(path, { depth: 1, ...options })) all.push(file)
    return all
  }

  /** Yields the files below a directory, by name; all levels unless `depth` says less. */
  walk(path = '/', options: ListOptions = {}): AsyncGenerator<FileInfo, void, undefined> {
    return this.transport.pages<FileInfo>(this.request('GET', '/list', path, options, { depth: options.depth ?? 0, glob: options.glob }), 10_000)
  }

  /** Makes a directory, and the ones above it. */
  async mkdir(path: string, options: FileOptions & { mode?: number | undefined; parents?: boolean | undefined } = {}): Promise<FileInfo> {
    return this.transport.call<FileInfo>(this.request('POST', '/mkdir', path, options, { mode: octal(options.mode), parents: options.parents ?? true }))
  }

  /** Moves or renames a file or directory. A file at the new path is replaced unless `keep` is set. */
  async move(from: string, to: string, options: FileOptions & { parents?: boolean | undefined; keep?: boolean | undefined } = {}): Promise<FileInfo> {
    return this.transport.call<FileInfo>(this.request('POST', '/move', from, options, { to, parents: options.parents, keep: options.keep }))
  }

  /** Removes a file, or a directory, which must be empty unless `recursive` is set. */
  async remove(path: string, options: FileOptions & { recursive?: boolean | undefined; ifMatch?: string | readonly string[] | undefined } = {}): Promise<void> {
    const match = tags(options.ifMatch)
    await this.transport.call({
      ...this.request('DELETE', '', path, options, { recursive: options.recursive }),
      headers: match === undefined ? {} : { 'if-match': match },
    })
  }

  /** Sets permissions, such as 0o755. */
  async chmod(path: string, mode: number, options: FileOptions & { recursive?: boolean | undefined } = {}): Promise<FileInfo> {
    return this.transport.call<FileInfo>(this.request('POST', '/chmod', path, options, { mode: octal(mode), recursive: options.recursive }))
  }

  /** Searches below a directory, by name, by content, or both. */
  async search(path: string, options: SearchOptions): Promise<SearchResult> {
    const { name, content, regexp, ignoreCase, limit } = options
    return this.transport.call<SearchResult>(this.request('GET', '/search', path, options, { name, content, regexp, ignore_case: ignoreCase, limit }))
  }

  /** Yields changes of a file or below a directory, until the loop is left, the signal is aborted or the sandbox ends. */
  async *watch(path: string, options: WatchOptions = {}): AsyncGenerator<FileEvent, void, undefined> {
    for await (const events of this.watchEvents(path, options)) yield* events.changes
  }

  /** As `watch`, with the event that says that the watch has begun (`ready`), and those of dropped changes (`overflow`). */
  async *watchEvents(path: string, options: WatchOptions = {}): AsyncGenerator<FileEvents, void, undefined> {
    const request = this.request('GET', '/watch', path, options, { recursive: options.recursive, debounce_ms: options.debounce })
    for await (const event of this.transport.events(request)) {
      if (event.name !== 'files') continue
      const doc = fromWire<FileEvents>(event.data)
      yield { ...doc, changes: doc.changes ?? [] }
    }
  }

  /** Copies a file or directory of this machine into the sandbox. A directory is merged into one that exists. */
  async upload(local: string, path: string, options: WriteOptions = {}): Promise<void> {
    const info = await statLocal(local)
    if (info.isDirectory()) {
      const body = packDirectory(local)
      const request = this.request('PUT', '/archive', path, options, { parents: options.parents ?? true })
      await this.transport.call({ ...request, headers: { 'content-type': 'application/x-tar' }, body })
    } else if (info.isFile()) {
      await this.write(path, createReadStream(local), { mode: info.mode & 0o7777, ...options })
    } else {
      throw new InvalidRequest(`${local} is neither a file nor a directory`, { code: 'invalid_argument', field: 'local' })
    }
  }

  /** Copies a file or directory of the sandbox to this machine. A directory is merged into one that exists. */
  async download(path: string, local: string, options: FileOptions = {}): Promise<void> {
    const info = await this.stat(path, options)
    if (info.type === 'dir') {
      await unpack(this.readArchive(path, options), local, basename(path))
      return
    }
    const target = (await statLocal(local).catch(() => undefined))?.isDirectory() ? join(local, basename(path)) : local
    await mkdir(dirname(target), { recursive: true })
    await pipeline(Readable.from(this.readStream(path, options)), createWriteStream(target, { mode: Number.parseInt(info.mode, 8) & 0o777 }))
  }

  /** Reads a file or directory as a tar. */
  readArchive(path: string, options: FileOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    return this.transport.bytes(this.request('GET', '/archive', path, options))
  }

  /** Unpacks a tar below a directory. */
  async writeArchive(path: string, tar: Input, options: FileOptions & { parents?: boolean | undefined } = {}): Promise<{ files: number; directories: number; bytes: number }> {
    const request = this.request('PUT', '/archive', path, options, { parents: options.parents ?? true })
    return this.transport.call({ ...request, headers: { 'content-type': 'application/x-tar' }, body: pieces(tar) })
  }
}
