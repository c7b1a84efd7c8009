import { createWriteStream } from 'node:fs'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { ForkError, errorOf, type Problem, type RametError } from './errors.js'
import type { components } from './generated/openapi.js'
import type { SnapshotInfo, SnapshotState } from './models.js'
import type { Client } from './client.js'
import { lifecycleBody, type Lifetime } from './create.js'
import type { NetworkOption } from './network.js'
import { holdOf, networkBody } from './network.js'
import type { Sandbox } from './sandbox.js'
import { withProgress, type MakeImageOptions } from './images.js'
import { segment, type CallOptions, type ChangeOptions, type Request } from './transport.js'

export interface RestoreOptions extends ChangeOptions, Lifetime {
  /** Number of sandboxes; if absent, the number of names, or 1. */
  count?: number | undefined
  names?: readonly string[] | undefined
  env?: Record<string, string> | undefined
  metadata?: Record<string, string> | undefined
  network?: NetworkOption | undefined
  /** `'writes'`, or true: requests that change something wait, as with a fork. */
  hold?: boolean | 'writes' | undefined
  /** The sandboxes are answered alike, as with a fork. */
  record?: boolean | undefined
  /** Host name of the sandboxes; that of the sandbox that was frozen if absent. */
  hostname?: string | undefined
  /** Each has a host name of its own: its name, or its id. */
  newHostname?: boolean | undefined
  require?: readonly 'fresh-randomness'[] | undefined
  /** Return the sandboxes that could be made, also if some could not; else that is a ForkError. */
  partial?: boolean | undefined
}

export interface PackOptions extends CallOptions {
  /** False leaves the image out, for machines that have it. */
  image?: boolean | undefined
  /** Sign it with the key of the tenant. */
  sign?: boolean | undefined
}

export interface UnpackOptions extends CallOptions {
  /** Name of the snapshot; the name that it was packed with if absent. */
  name?: string | undefined
  /** Public keys, one of which must have signed it. */
  trust?: readonly string[] | undefined
}

/** A snapshot that was sent to a registry. */
export type PushResult = components['schemas']['PushResult']

/** Sandboxes that were made together. With `await using` all of them are destroyed at the end of the block. */
export class Sandboxes extends Array<Sandbox> implements AsyncDisposable {
  static override get [Symbol.species]() {
    return Array
  }
  /** How long the source stood still, in milliseconds. */
  pauseMs = 0
  /** From the call to the finished snapshot, in milliseconds. */
  snapshotMs = 0
  /** From the call to its return, in milliseconds. */
  returnMs = 0
  /** Why others were not made, with `partial`. */
  errors: RametError[] = []

  async destroy(): Promise<void> {
    await Promise.all(this.map((sandbox) => sandbox[Symbol.asyncDispose]()))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.destroy()
  }
}

/** @internal Returns the sandboxes of the answer to a fork or restore. */
export function sandboxesOf(client: Client, answer: components['schemas']['ForkResult'], options: RestoreOptions): Sandboxes {
  const out = new Sandboxes()
  for (const child of answer.children) {
    if (child.sandbox) out.push(client.made(child.sandbox, options))
    else out.errors.push(errorOf((child.error ?? { code: 'internal', detail: 'a child has neither a sandbox nor an error' }) as unknown as Problem))
  }
  out.pauseMs = answer.pauseMs
  out.snapshotMs = answer.snapshotMs
  out.returnMs = answer.returnMs
  if (out.errors.length > 0 && !options.partial) throw new ForkError(out, out.errors)
  return out
}

/** A frozen state that any number of sandboxes can be restored from. */
export class Snapshot {
  private known: SnapshotInfo

  /** @internal */
  constructor(
    private readonly client: Client,
    info: SnapshotInfo,
  ) {
    this.known = info
  }

  get id(): string {
    return this.known.id
  }
  get name(): string {
    return this.known.name
  }
  /** State, as it was last seen. */
  get state(): SnapshotState {
    return this.known.state
  }
  /** As it was last seen. */
  get lastInfo(): SnapshotInfo {
    return this.known
  }

  /** As it was last seen, for `JSON.stringify`. */
  toJSON(): SnapshotInfo {
    return this.known
  }

  private request(method: Request['method'], rest: string, options: ChangeOptions): Request {
    return { method, path: `/v1/snapshots/${segment(this.id)}${rest}`, signal: options.signal, idempotencyKey: options.idempotencyKey, repeatable: true }
  }

  /** Asks for its present state. */
  async info(options: ChangeOptions = {}): Promise<SnapshotInfo> {
    this.known = await this.client.transport.call<SnapshotInfo>(this.request('GET', '', options))
    return this.known
  }

  /** Makes sandboxes that go on where it was taken. */
  async restore(options: RestoreOptions | number = {}): Promise<Sandboxes> {
    const o = typeof options === 'number' ? { count: options } : options
    return this.client.restore(this.id, o)
  }

  /** Writes it to a file of this machine, from which other machines make it. The file has all of its memory. */
  async pack(local: string, options: PackOptions = {}): Promise<void> {
    const query = { without_image: options.image === false || undefined, sign: options.sign }
    await pipeline(Readable.from(this.client.transport.bytes({ ...this.request('GET', '/pack', options), query })), createWriteStream(local))
  }

  /** Sends it to a container registry. */
  async push(ref: string, options: PackOptions & MakeImageOptions = {}): Promise<PushResult> {
    const json = { ref, without_image: options.image === false || undefined, sign: options.sign }
    return withProgress(this.client.transport, { method: 'POST', path: `/v1/snapshots/${segment(this.id)}/push`, json, signal: options.signal }, 'pushed', options)
  }

  /** Compares it on disk with its digests. */
  async verify(options: ChangeOptions = {}): Promise<SnapshotInfo> {
    this.known = await this.client.transport.call<SnapshotInfo>(this.request('POST', '/verify', options))
    return this.known
  }

  /** Deletes it. Snapshots that depend on it go too with `cascade`, or are made independent with `flatten`. */
  async delete(options: ChangeOptions & { cascade?: boolean | undefined; flatten?: boolean | undefined } = {}): Promise<void> {
    const { cascade, flatten } = options
    await this.client.transport.call({ ...this.request('DELETE', '', options), query: { cascade, flatten } })
  }
}

/** @internal */
export function restoreBody(o: RestoreOptions): Record<string, unknown> {
  const { count, names, env, metadata, require, record } = o
  return { count, names, env, metadata, require, record, hold: holdOf(o.hold), network: networkBody(o.network), lifecycle: lifecycleBody(o), hostname: o.hostname, new_hostname: o.newHostname }
}
