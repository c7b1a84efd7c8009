import { createReadStream } from 'node:fs'
import type { ConnectOptions } from './address.js'
import { createBody, type CreateOptions, type Lifetime } from './create.js'
import { NotFound } from './errors.js'
import type { components } from './generated/openapi.js'
import { Exploration, type ExplorationInfo } from './explore.js'
import { Images, withProgress, type MakeImageOptions } from './images.js'
import type { AuditEntry, AuditReport, Health, SandboxEvent, SandboxInfo, SandboxState, SnapshotInfo, SnapshotState, TreeNode } from './models.js'
import type { NetworkProfile } from './network.js'
import { labels, Lease, type OwnerOptions } from './lease.js'
import { events, Sandbox, type BuildOptions, type EventOptions } from './sandbox.js'
import { restoreBody, sandboxesOf, Snapshot, type RestoreOptions, type Sandboxes, type UnpackOptions } from './snapshot.js'
import { SecretStore } from './secrets.js'
import { Volumes } from './volumes.js'
import { segment, Transport, type CallOptions, type Query } from './transport.js'

interface Filter extends CallOptions {
  image?: string | undefined
  name?: string | undefined
  /** Only those with all of these labels. */
  metadata?: Record<string, string> | undefined
  /** Only those that a client with this `owner` made, and their children. */
  owner?: string | undefined
  /** Of all tenants, for operators. */
  allTenants?: boolean | undefined
}

export interface ListOptions extends Filter {
  state?: SandboxState | undefined
  /** Only those that were forked from this sandbox, or restored from this snapshot or one of it. */
  parent?: string | undefined
  /** Only descendants of this sandbox or snapshot. */
  ancestor?: string | undefined
}

export interface SnapshotListOptions extends Filter {
  state?: SnapshotState | undefined
  /** Only snapshots of this sandbox, by id. */
  sandbox?: string | undefined
}

function filterQuery({ image, name, metadata, owner, allTenants }: Filter): Query {
  return { image, name, all_tenants: allTenants, metadata: Object.entries(labels(metadata, owner) ?? {}).map(([key, value]) => `${key}=${value}`) }
}

/** A daemon. It keeps connections open between calls, which do not keep the program alive. */
export class Client implements AsyncDisposable {
  readonly images: Images
  readonly secrets: SecretStore
  readonly volumes: Volumes
  /** @internal */
  readonly transport: Transport

  private readonly owner: string | undefined
  private readonly lease: Lease | undefined

  constructor(options: ConnectOptions & OwnerOptions = {}) {
    this.owner = options.owner
    this.lease = options.lease === undefined ? undefined : new Lease(options.lease)
    this.transport = new Transport(options)
    this.images = new Images(this.transport)
    this.secrets = new SecretStore(this.transport)
    this.volumes = new Volumes(this.transport)
  }

  /** The address of its daemon, for `JSON.stringify`. */
  toJSON(): { host: string } {
    const { socket, url } = this.transport.address
    return { host: socket === undefined ? String(url?.origin) : `unix:${socket}` }
  }

  /** Ends the idle connections. Sandboxes go on, those of a lease until it is over. */
  close(): void {
    this.lease?.stop()
    this.transport.close()
  }

  /** Destroys the sandboxes of its lease, but for those that are detached, and ends the idle connections. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.lease?.end()
    this.close()
  }

  /** @internal Returns the options of sandboxes that are being made, with its label and time to live. */
  owned<O extends Lifetime & { metadata?: Record<string, string> | undefined }>(options: O): O {
    const labelled = { ...options, metadata: labels(options.metadata, this.owner) }
    return this.lease?.lived(labelled) ?? labelled
  }

  /** @internal Returns a sandbox that was made with these options. */
  made(info: SandboxInfo, options: Lifetime): Sandbox {
    const sandbox = new Sandbox(this, info, true)
    if (options.ttl === undefined) this.lease?.add(sandbox)
    return sandbox
  }

  /** Asks for the state and version of the daemon. */
  async health(options: CallOptions = {}): Promise<Health> {
    return this.transport.call<Health>({ method: 'GET', path: '/healthz', signal: options.signal })
  }

  /** Makes a sandbox of an image or a snapshot. The image `python` is built if it is missing. */
  async create(options: CreateOptions & BuildOptions = {}): Promise<Sandbox> {
    const body = createBody(this.owned(options))
    const make = async (): Promise<Sandbox> => {
      const { signal, idempotencyKey } = options
      const info = await this.transport.call<SandboxInfo>({ method: 'POST', path: '/v1/sandboxes', json: body, signal, idempotencyKey, repeatable: true })
      return this.made(info, options)
    }
    try {
      return await make()
    } catch (error) {
      if (!(error instanceof NotFound) || body['image'] !== 'python') throw error
      await this.images.build('python', { include: ['python3', 'python3-numpy'], signal: options.signal, onProgress: options.onProgress })
      return make()
    }
  }

  /** Returns a sandbox that exists, by id or name. */
  async sandbox(ref: string, options: CallOptions = {}): Promise<Sandbox> {
    const info = await this.transport.call<SandboxInfo>({ method: 'GET', path: `/v1/sandboxes/${segment(ref)}`, signal: options.signal })
    return new Sandbox(this, info, false)
  }

  /** Lists sandboxes, the oldest first. */
  async list(options: ListOptions = {}): Promise<Sandbox[]> {
    const { state, parent, ancestor } = options
    const query = { ...filterQuery(options), state, parent, ancestor }
    const all: Sandbox[] = []
    for await (const info of this.transport.pages<SandboxInfo>({ method: 'GET', path: '/v1/sandboxes', query, signal: options.signal })) {
      all.push(new Sandbox(this, info, false))
    }
    return all
  }

  /** Makes sandboxes of a snapshot, by id or name. */
  async restore(snapshot: string, options: RestoreOptions = {}): Promise<Sandboxes> {
    const answer = await this.transport.call<components['schemas']['ForkResult']>({
      method: 'POST',
      path: `/v1/snapshots/${segment(snapshot)}/restore`,
      json: restoreBody(this.owned(options)),
      signal: options.signal,
      idempotencyKey: options.idempotencyKey,
      repeatable: true,
    })
    return sandboxesOf(this, answer, options)
  }

  /** Returns a snapshot, by id or name. */
  async snapshot(ref: string, options: CallOptions = {}): Promise<Snapshot> {
    return new Snapshot(this, await this.transport.call<SnapshotInfo>({ method: 'GET', path: `/v1/snapshots/${segment(ref)}`, signal: options.signal }))
  }

  /** Makes a snapshot of a file that `Snapshot.pack` has written, here or on another machine. */
  async unpackSnapshot(local: string, options: UnpackOptions = {}): Promise<Snapshot> {
    const query = { name: options.name, trust: options.trust }
    const headers = { 'content-type': 'application/x-tar' }
    const info = await this.transport.call<SnapshotInfo>({ method: 'POST', path: '/v1/snapshots/unpack', query, headers, body: createReadStream(local), signal: options.signal })
    return new Snapshot(this, info)
  }

  /** Makes a snapshot of one in a container registry. */
  async pullSnapshot(ref: string, options: UnpackOptions & MakeImageOptions = {}): Promise<Snapshot> {
    const json = { ref, name: options.name, trust: options.trust }
    return new Snapshot(this, await withProgress<SnapshotInfo>(this.transport, { method: 'POST', path: '/v1/snapshots/pull', json, signal: options.signal }, 'snapshot', options))
  }

  /** Lists snapshots, the oldest first. */
  async snapshots(options: SnapshotListOptions = {}): Promise<Snapshot[]> {
    const query = { ...filterQuery(options), state: options.state, sandbox: options.sandbox }
    const all: Snapshot[] = []
    for await (const info of this.transport.pages<SnapshotInfo>({ method: 'GET', path: '/v1/snapshots', query, signal: options.signal })) {
      all.push(new Snapshot(this, info))
    }
    return all
  }

  /** Deletes a snapshot, by id or name. */
  async deleteSnapshot(ref: string, options: Parameters<Snapshot['delete']>[0] = {}): Promise<void> {
    await (await this.snapshot(ref, options)).delete(options)
  }

  /** The lineage of all sandboxes and snapshots, or of one sandbox. */
  async tree(options: CallOptions & { sandbox?: string | undefined } = {}): Promise<TreeNode[]> {
    const query = { sandbox: options.sandbox }
    return (await this.transport.call<{ items: TreeNode[] }>({ method: 'GET', path: '/v1/tree', query, signal: options.signal })).items
  }

  /** Returns an exploration, by its id. */
  async exploration(id: string, options: CallOptions = {}): Promise<Exploration> {
    const info = await this.transport.call<ExplorationInfo>({ method: 'GET', path: `/v1/explorations/${segment(id)}`, signal: options.signal })
    return new Exploration(await this.sandbox(info.sandbox, options), info)
  }

  /** Lists the profiles that networks may name. */
  async networkProfiles(options: CallOptions = {}): Promise<NetworkProfile[]> {
    return (await this.transport.call<{ items: NetworkProfile[] }>({ method: 'GET', path: '/v1/network/profiles', signal: options.signal })).items
  }

  /** Yields the events of all sandboxes. */
  events(options: EventOptions = {}): AsyncGenerator<SandboxEvent, void, undefined> {
    return events(this.transport, '/v1/events', options)
  }

  /**
   * Yields the entries of the audit log after the one with the number `since`, the oldest first: who did what and with which
   * result, without the contents of requests. It needs a token with scope admin; an administrator of a tenant sees its own entries.
   */
  async *audit(options: CallOptions & { since?: number | undefined } = {}): AsyncGenerator<AuditEntry, void, undefined> {
    const limit = 1000
    for (let since = options.since ?? 0; ; ) {
      const query = { since, limit }
      const { items } = await this.transport.call<{ items: AuditEntry[] }>({ method: 'GET', path: '/v1/audit', query, signal: options.signal })
      yield* items
      if (items.length < limit) return
      since = (items.at(-1) as AuditEntry).seq
    }
  }

  /**
   * Computes the digests of all lines of the audit log anew, and tells what is wrong with them. `head` is that of an earlier
   * report, which is kept elsewhere: then lines that were cut off are found, too.
   */
  async verifyAudit(options: CallOptions & { head?: string | undefined } = {}): Promise<AuditReport> {
    const query = { head: options.head }
    return this.transport.call<AuditReport>({ method: 'GET', path: '/v1/audit/verify', query, signal: options.signal })
  }

  /** Tells what the daemon has, and how long what took, in the text format of Prometheus. */
  async metrics(options: CallOptions = {}): Promise<string> {
    const parts: Uint8Array[] = []
    for await (const part of this.transport.bytes({ method: 'GET', path: '/metrics', accept: 'text/plain', signal: options.signal })) parts.push(part)
    return Buffer.concat(parts).toString()
  }
}

/** Returns a client of a daemon: that of the options, of RAMET_HOST, or the user's own, which is started when it is needed. */
export function connect(options: ConnectOptions & OwnerOptions = {}): Client {
  return new Client(options)
}

let shared: { client: Client; environment: string } | undefined

/** Returns the client of the daemon that the environment names, which all handles share. */
export function defaultClient(): Client {
  const names = ['RAMET_HOST', 'RAMET_TOKEN', 'RAMET_TOKEN_FILE', 'RAMET_CA', 'RAMET_RUNTIME_DIR', 'XDG_RUNTIME_DIR']
  const environment = JSON.stringify(names.map((name) => process.env[name]))
  if (shared?.environment !== environment) shared = { client: new Client(), environment }
  return shared.client
}
