import { randomUUID } from 'node:crypto'
import { Contexts, runCode, type Execution, type RunCodeOptions } from './code.js'
import { defaultClient, type Client, type ListOptions } from './client.js'
import type { CreateOptions, Lifetime } from './create.js'
import { lifecycleBody } from './create.js'
import { commandBody, exec, ExecStream, type Command, type CommandOptions, type ExecOptions, type Result } from './exec.js'
import { Conflict, InvalidRequest, NotFound } from './errors.js'
import { Exploration, planBody, type ExplorationInfo, type ExplorationState, type ExploreOptions, type ExplorePlan } from './explore.js'
import { Files } from './files.js'
import { fromWire } from './models.js'
import type { components } from './generated/openapi.js'
import type {
  BisectResult, Diff, EventKind, MergeResult, MergeStrategy, PortInfo, SandboxEvent, SandboxInfo, SandboxState, Stats, Step, TreeNode,
} from './models.js'
import { holdOf, Network, networkBody, type NetworkOption } from './network.js'
import { Port, type PublishedPort } from './ports.js'
import { Processes, type Attachment, type Process, type PtyOptions, type StartOptions } from './processes.js'
import { Held } from './secrets.js'
import { sandboxesOf, Snapshot, type RestoreOptions, type Sandboxes } from './snapshot.js'
import { segment, wasLost, type CallOptions, type ChangeOptions, type Query, type Request, type Transport } from './transport.js'

/** Which daemon a static method talks to; the one of the environment if absent. */
export interface OnClient {
  client?: Client | undefined
}

export interface RestoreOneOptions extends Omit<RestoreOptions, 'count' | 'names' | 'partial'> {
  name?: string | undefined
}

export interface ForkOptions extends ChangeOptions, Lifetime {
  /** Number of children; if absent, the number of names, or 1. */
  count?: number | undefined
  /** Names of the children, one for each. */
  names?: readonly string[] | undefined
  /** Added to the environment of commands in the children. */
  env?: Record<string, string> | undefined
  /** Commands in the children have the secret variables of the parent, too. */
  secretEnv?: boolean | undefined
  /** Labels of the children, added to those of the parent. */
  metadata?: Record<string, string> | undefined
  /** The parent's if absent. */
  network?: NetworkOption | undefined
  /** `'writes'`, or true: requests that change something (all but GET, HEAD and OPTIONS) wait until a child is promoted or they are released: see `held`. */
  hold?: boolean | 'writes' | undefined
  /** The children are answered alike: what the first one was answered is the answer to others that ask the same. */
  record?: boolean | undefined
  /** False: return as soon as the parent goes on; requests to a child wait until it runs. */
  wait?: boolean | undefined
  /** Host name of the children; the parent's if absent. */
  hostname?: string | undefined
  /** Each child has a host name of its own: its name, or its id. */
  newHostname?: boolean | undefined
  /** Milliseconds for each child; 30000 if absent. */
  timeout?: number | undefined
  require?: readonly 'fresh-randomness'[] | undefined
  /** Return the children that could be made, also if some could not; else that is a ForkError. */
  partial?: boolean | undefined
}

export interface SnapshotOptions extends ChangeOptions {
  name?: string | undefined
  metadata?: Record<string, string> | undefined
  /** Keep it in memory only; it is gone when the daemon ends. */
  memory?: boolean | undefined
  /** False: return as soon as the sandbox goes on; the snapshot is uploading until it is on disk. */
  wait?: boolean | undefined
}

export interface DiffOptions extends CallOptions {
  /** Only these absolute paths and the files below them. */
  paths?: readonly string[] | undefined
  /** Include unified diffs of text files. */
  hunks?: boolean | undefined
  /** Include numbers of lines that differ. */
  stat?: boolean | undefined
  /** Include processes. */
  processes?: boolean | undefined
  /** Include variables of interpreters. */
  variables?: boolean | undefined
}

export interface MergeOptions extends ChangeOptions {
  /** Treatment of conflicts; leave if absent. */
  strategy?: MergeStrategy | undefined
  paths?: readonly string[] | undefined
  exclude?: readonly string[] | undefined
  dryRun?: boolean | undefined
}

export interface EventOptions extends CallOptions {
  kinds?: readonly EventKind[] | undefined
  /** Sequence number of the last event that is known; 0 for all that are kept, -1 for those from now on. */
  since?: number | undefined
  /** Go on with new events. */
  follow?: boolean | undefined
}

/** A sandbox, by its id: a handle that holds nothing open. */
export class Sandbox implements AsyncDisposable {
  readonly id: string
  readonly files: Files
  readonly processes: Processes
  readonly contexts: Contexts
  readonly network: Network
  readonly held: Held
  private known: SandboxInfo
  private detached = false
  private readonly transport: Transport

  /** @internal */
  constructor(
    readonly client: Client,
    info: SandboxInfo,
    /** It was made through this handle, and is destroyed with it by `await using`. */
    private readonly owned: boolean,
  ) {
    this.known = info
    this.id = info.id
    this.transport = client.transport
    this.files = new Files(this.transport, this.id)
    this.processes = new Processes(this.transport, this.id)
    this.contexts = new Contexts(this.transport, this.id)
    this.network = new Network(this.transport, this.id)
    this.held = new Held(this.transport, this.id)
  }

  /** Makes a sandbox of an image or a snapshot, and returns it once commands can run in it. The image `python` is built if it is missing. */
  static create(options: string | (CreateOptions & OnClient & BuildOptions) = {}): Promise<Sandbox> {
    const o = typeof options === 'string' ? { image: options } : options
    return clientOf(o).create(o)
  }

  /** Returns a sandbox that exists, by id or name. */
  static connect(ref: string, options: CallOptions & OnClient = {}): Promise<Sandbox> {
    return clientOf(options).sandbox(ref, options)
  }

  /** Lists sandboxes, the oldest first. */
  static list(options: ListOptions & OnClient = {}): Promise<Sandbox[]> {
    return clientOf(options).list(options)
  }

  /** Makes a sandbox of a snapshot, by id or name; more of them with `Snapshot.restore`. */
  static async restore(snapshot: string | Snapshot, options: RestoreOneOptions & OnClient = {}): Promise<Sandbox> {
    const ref = typeof snapshot === 'string' ? snapshot : snapshot.id
    const { name, client, ...rest } = options
    const [sandbox] = await clientOf({ client }).restore(ref, { ...rest, names: name === undefined ? undefined : [name] })
    return sandbox as Sandbox
  }

  /** Name, as it was last seen; empty without one. */
  get name(): string {
    return this.known.name
  }
  /** State, as it was last seen. */
  get state(): SandboxState {
    return this.known.state
  }
  /** As it was last seen. */
  get lastInfo(): SandboxInfo {
    return this.known
  }

  /** As it was last seen, for `JSON.stringify`. */
  toJSON(): SandboxInfo {
    return this.known
  }

  private request(method: Request['method'], rest: string, options: ChangeOptions, json?: unknown): Request {
    return {
      method,
      path: `/v1/sandboxes/${segment(this.id)}${rest}`,
      json,
      signal: options.signal,
      idempotencyKey: options.idempotencyKey,
      repeatable: true,
      sandbox: this.id,
    }
  }

  private async changed(method: Request['method'], rest: string, options: ChangeOptions, json?: unknown): Promise<this> {
    this.known = await this.transport.call<SandboxInfo>(this.request(method, rest, options, json))
    return this
  }

  /** Asks for its present state. */
  async info(options: CallOptions = {}): Promise<SandboxInfo> {
    await this.changed('GET', '', options)
    return this.known
  }

  /** Asks for the memory, disk and processor time that it uses. */
  async stats(options: CallOptions = {}): Promise<Stats> {
    return this.transport.call<Stats>(this.request('GET', '/stats', options))
  }

  /** Changes its name, labels and lifetime. A label with null is removed. */
  async update(options: ChangeOptions & Lifetime & { name?: string | undefined; metadata?: Record<string, string | null> | undefined }): Promise<this> {
    const { name, metadata } = options
    return this.changed('PATCH', '', options, { name, metadata, lifecycle: lifecycleBody(options) })
  }

  /** Runs a command whose output is read while it runs: `for await (const { stream, text } of sbx.exec('make', { stream: true }))`. */
  exec(command: Command, options: ExecOptions & { stream: true }): ExecStream
  /** Starts a command that goes on by itself. */
  exec(command: Command, options: StartOptions & { background: true }): Promise<Process>
  /** Runs a command to its end: a text for /bin/sh, or a program with its arguments. A command that fails is a result and no error. */
  exec(command: Command, options?: ExecOptions): Promise<Result>
  exec(command: Command, options: (ExecOptions | StartOptions) & { stream?: boolean; background?: boolean } = {}): unknown {
    if (options.background) return this.processes.start(command, options as StartOptions)
    if (options.stream) return new ExecStream(this.transport, this.id, command, options as ExecOptions)
    return exec(this.transport, this.id, command, options as ExecOptions)
  }

  /** Opens a terminal. */
  pty(options: PtyOptions = {}): Promise<Attachment> {
    return this.processes.pty(options)
  }

  /** Runs code in an interpreter, which keeps its state for the next call and in forks. Code that fails is a result and no error. */
  runCode(code: string, options: RunCodeOptions = {}): Promise<Execution> {
    return runCode(this.transport, this.id, code, options)
  }

  /** Makes children that have all of this running sandbox: files, memory and processes. */
  async fork(options: number | ForkOptions = {}, more: ForkOptions = {}): Promise<Sandboxes> {
    const asked: ForkOptions = typeof options === 'number' ? { ...more, count: options } : options
    const o = this.client.owned(asked)
    const { names, env, metadata, wait, require, record } = o
    const body = {
      count: o.count ?? names?.length, names, env, secret_env: o.secretEnv, metadata, wait, require, record, hold: holdOf(o.hold),
      timeout_ms: o.timeout, network: networkBody(o.network), lifecycle: lifecycleBody(o), hostname: o.hostname, new_hostname: o.newHostname,
    }
    const answer = await this.transport.call<components['schemas']['ForkResult']>(this.request('POST', '/fork', o, body))
    return sandboxesOf(this.client, answer, asked)
  }

  /**
   * Forks it into attempts, runs a command or code in each, scores them, and promotes, merges or keeps the best. The others are
   * stopped early if `search` says so, and destroyed. That no attempt succeeds is a result; an exploration that fails is an ExploreError.
   */
  async explore(plan: Command | ExplorePlan, options: ExploreOptions = {}): Promise<Exploration> {
    const { wait = true, signal } = options
    signal?.throwIfAborted()
    const change = { idempotencyKey: options.idempotencyKey ?? randomUUID() }
    const json = planBody(plan)
    const begin = async (more: CallOptions): Promise<Exploration> =>
      new Exploration(this, await this.transport.call<ExplorationInfo>(this.request('POST', '/explorations', { ...change, ...more }, json)))
    try {
      const begun = await begin({ signal })
      return wait ? await begun.wait({ signal }) : begun
    } catch (error) {
      // The same key gives the same exploration, also one whose answer was not waited for.
      if (signal?.aborted) await begin({}).then((begun) => begun.cancel()).catch(() => undefined)
      throw error
    }
  }

  /** Lists its explorations that the daemon knows, the oldest first, without outputs and comparisons. */
  async explorations(options: CallOptions & { state?: ExplorationState | undefined } = {}): Promise<Exploration[]> {
    const query = { sandbox: this.id, state: options.state }
    const all: Exploration[] = []
    for await (const info of this.transport.pages<ExplorationInfo>({ method: 'GET', path: '/v1/explorations', query, signal: options.signal })) {
      all.push(new Exploration(this, info))
    }
    return all
  }

  /** @internal Returns a child that was not made by `fork`. */
  adopt(id: string): Sandbox {
    return this.client.made({ ...this.known, id, name: '', state: 'running', parent: this.id }, {})
  }

  /** Makes a snapshot, while the sandbox goes on. */
  async snapshot(options: string | SnapshotOptions = {}): Promise<Snapshot> {
    const o = typeof options === 'string' ? { name: options } : options
    const { name, metadata, memory, wait } = o
    const info = await this.transport.call<Snapshot['lastInfo']>(this.request('POST', '/snapshots', o, { name, metadata, memory, wait }))
    return new Snapshot(this.client, info)
  }

  /** Lists its snapshots, the oldest first. */
  snapshots(options: CallOptions = {}): Promise<Snapshot[]> {
    return this.client.snapshots({ ...options, sandbox: this.id })
  }

  /** Returns it to a snapshot of it, by default its latest, or to a step of its timeline. It keeps its id. */
  async rollback(to?: string | Snapshot | { step: number }, options: ChangeOptions = {}): Promise<this> {
    if (typeof to === 'object' && 'step' in to) return this.changed('POST', '/rollback', options, { step: to.step })
    let ref = typeof to === 'string' ? to : to?.id
    if (ref === undefined) {
      ref = (await this.snapshots(options)).findLast((snapshot) => snapshot.state === 'ready' || snapshot.state === 'uploading')?.id
      if (ref === undefined) throw new NotFound(`sandbox ${this.id} has no snapshot to return to`, { code: 'not_found', remedy: 'make one with snapshot()' })
    }
    return this.changed('POST', '/rollback', options, { snapshot: ref })
  }

  /** Compares its files with another's, and on request processes and variables. */
  async diff(other: string | Sandbox | Snapshot, options: DiffOptions = {}): Promise<Diff> {
    const { paths, hunks, stat, processes, variables } = options
    const query: Query = { to: refOf(other), path: paths, hunks, stat, processes, variables }
    return this.transport.call<Diff>({ ...this.request('GET', '/diff', options), query })
  }

  /** Applies what others changed in their files since they parted. Conflicts are in the result. */
  async merge(from: string | Sandbox | Snapshot | readonly (string | Sandbox | Snapshot)[], options: MergeOptions = {}): Promise<MergeResult> {
    const sides = (Array.isArray(from) ? from : [from]) as readonly (string | Sandbox | Snapshot)[]
    const { strategy, paths, exclude, dryRun } = options
    const body = { from: sides.map(refOf), strategy, paths, exclude, dry_run: dryRun }
    return this.transport.call<MergeResult>(this.request('POST', '/merge', options, body))
  }

  /** Goes on with the state of a child, files and memory, under its own id; the child is gone. */
  async promote(child: string | Sandbox, options: ChangeOptions = {}): Promise<this> {
    const winner = typeof child === 'string' ? await this.client.sandbox(child, options) : child
    if (winner.lastInfo.parent !== this.id) {
      throw new InvalidRequest(`${winner.id} is not a child of ${this.id}, but of ${winner.lastInfo.parent || 'no sandbox'}`, {
        code: 'invalid_argument',
        field: 'child',
      })
    }
    const path = `/v1/sandboxes/${segment(winner.id)}/promote`
    this.known = await this.transport.call<SandboxInfo>({ ...this.request('POST', '', options), path, sandbox: undefined })
    return this
  }

  /** Stops its processes; their memory stays. */
  pause(options: ChangeOptions = {}): Promise<this> {
    return this.changed('POST', '/pause', options)
  }

  /** Lets it go on, after a pause or hibernation. */
  async resume(options: ChangeOptions = {}): Promise<this> {
    if (this.known.state === 'hibernated') return this.wake(options)
    try {
      return await this.changed('POST', '/resume', options)
    } catch (error) {
      if (!(error instanceof Conflict) || (await this.info(options)).state !== 'hibernated') throw error
      return this.wake(options)
    }
  }

  /** Writes it to disk and frees its memory. */
  hibernate(options: ChangeOptions = {}): Promise<this> {
    return this.changed('POST', '/hibernate', options)
  }

  /** Brings it back from disk. */
  wake(options: ChangeOptions = {}): Promise<this> {
    return this.changed('POST', '/wake', options)
  }

  /** Ends it and removes its files. A second call is a NotFound. */
  async destroy(options: ChangeOptions = {}): Promise<void> {
    // A sandbox that is not there any more is what was asked for, so the request is not one about a living sandbox.
    await this.transport.call({ ...this.request('DELETE', '', options), sandbox: undefined })
    this.known = { ...this.known, state: 'destroyed' }
  }

  /** A TCP port of it. */
  port(port: number): Port {
    return new Port(this.transport, this.id, port)
  }

  /** Lists the ports on which processes listen. */
  async ports(options: CallOptions = {}): Promise<PortInfo[]> {
    return (await this.transport.call<{ items: PortInfo[] }>(this.request('GET', '/ports', options))).items
  }

  /** Lists the ports of the daemon's host that lead to it: see `Port.publish`. */
  async publishedPorts(options: CallOptions = {}): Promise<PublishedPort[]> {
    return (await this.transport.call<{ items: PublishedPort[] }>(this.request('GET', '/ports/published', options))).items
  }

  /** Ends a port of the daemon's host, with its connections. */
  async unpublish(hostPort: number, options: ChangeOptions = {}): Promise<void> {
    await this.transport.call(this.request('DELETE', `/ports/published/${segment(String(hostPort))}`, options))
  }

  /** The lineage below it. */
  async tree(options: CallOptions = {}): Promise<TreeNode | undefined> {
    const [node] = await this.client.tree({ ...options, sandbox: this.id })
    return node
  }

  /** Lists the steps of a sandbox with automatic checkpoints. */
  async timeline(options: CallOptions = {}): Promise<Step[]> {
    return (await this.transport.call<{ items: Step[] }>(this.request('GET', '/timeline', options))).items
  }

  /** Finds the first step at which a command fails. */
  async bisect(command: Command, options: CommandOptions & ChangeOptions = {}): Promise<BisectResult> {
    return this.transport.call<BisectResult>(this.request('POST', '/bisect', options, commandBody(command, options)))
  }

  /** Yields its events. */
  events(options: EventOptions = {}): AsyncGenerator<SandboxEvent, void, undefined> {
    return events(this.transport, `/v1/sandboxes/${segment(this.id)}/events`, options)
  }

  /** Yields the output of all its background processes, with `follow` also what comes. */
  async *logs(options: CallOptions & { follow?: boolean | undefined } = {}): AsyncGenerator<{ pid: number; stream: 'stdout' | 'stderr'; text: string }, void, undefined> {
    for await (const event of this.transport.events({ ...this.request('GET', '/logs', options), query: { follow: options.follow } })) {
      if (event.name !== 'stdout' && event.name !== 'stderr') continue
      const { pid, data, encoding } = event.data as { pid: number; data: string; encoding: string }
      yield { pid, stream: event.name, text: encoding === 'base64' ? Buffer.from(data, 'base64').toString() : data }
    }
  }

  /** Keeps it at the end of its block of `await using`, and of that of its client. */
  detach(): this {
    this.detached = true
    return this
  }

  /** @internal */
  get isDetached(): boolean {
    return this.detached
  }

  /** Destroys it if it was made through this handle, is not detached, and is there. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.owned || this.detached) return
    await this.destroy().catch((error: unknown) => {
      if (!(error instanceof NotFound)) throw error
    })
  }

  // The words of other systems.

  /** As `destroy`. */
  kill(options: ChangeOptions = {}): Promise<void> {
    return this.destroy(options)
  }
  /** As `destroy`. */
  close(options: ChangeOptions = {}): Promise<void> {
    return this.destroy(options)
  }
  /** As `promote`: it goes on with the state of this child. */
  mergeInto(winner: string | Sandbox, options: ChangeOptions = {}): Promise<this> {
    return this.promote(winner, options)
  }
  /** `commands.run` is as `exec`. */
  readonly commands = { run: (command: Command, options: ExecOptions = {}): Promise<Result> => this.exec(command, options) }
}

export interface BuildOptions {
  /** Called with the progress of building the image `python`, the first time. */
  onProgress?: ((progress: components['schemas']['Progress']) => void) | undefined
}

function clientOf(options: OnClient): Client {
  return options.client ?? defaultClient()
}

function refOf(of: string | Sandbox | Snapshot): string {
  return typeof of === 'string' ? of : of.id
}

/** @internal Yields events, and goes on after the last one when a connection broke off. */
export async function* events(transport: Transport, path: string, options: EventOptions): AsyncGenerator<SandboxEvent, void, undefined> {
  let since = options.since ?? 0
  for (let lost = 0; ; ) {
    const query = { kind: options.kinds, since, follow: String(options.follow ?? false) }
    const request: Request = { method: 'GET', path, query, signal: options.signal }
    try {
      for await (const event of transport.events(request)) {
        if (event.name === 'end') return
        if (event.name !== 'event') continue
        lost = 0
        const found = fromWire<SandboxEvent>(event.data)
        since = found.seq
        yield found
      }
      return
    } catch (error) {
      // If it is another daemon that answers then, an event says which events are unknown.
      if (!wasLost(error) || lost++ >= 2) throw error
    }
  }
}
