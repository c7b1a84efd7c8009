import { InvalidRequest } from './errors.js'
import type { AutoCheckpoint, IdleAction, SelfControl } from './models.js'
import { networkBody, type NetworkOption, type Secrets } from './network.js'
import type { ChangeOptions } from './transport.js'

/** When a sandbox ends or rests by itself. */
export interface Lifetime {
  /** Milliseconds from now after which it is destroyed; 0 is never. */
  ttl?: number | undefined
  /** Milliseconds that it may be unused; 0 is without end. */
  idleTimeout?: number | undefined
  /** What is done then; hibernate if absent. */
  idleAction?: IdleAction | undefined
  /** Whether a request that needs it wakes it; true if absent. */
  autoWake?: boolean | undefined
  /** How many snapshots without a name its tree keeps; 0 is all. */
  keepSnapshots?: number | undefined
  /** Milliseconds for which its snapshots without a name are kept; 0 is without end. */
  snapshotMaxAge?: number | undefined
}

/** An amount of memory or disk: a number of MiB, or a text such as `'512MiB'` or `'2GiB'`. */
export type Size = number | string

export interface CreateOptions extends ChangeOptions, Lifetime {
  /** Image or snapshot, by id or name. */
  image?: string | undefined
  /** Name, unique among your sandboxes. */
  name?: string | undefined
  /** Environment of its commands. */
  env?: Record<string, string> | undefined
  /** Variables of its commands that nothing shows, that no snapshot has, and that children have only if a fork asks for it. */
  secretEnv?: Record<string, string> | undefined
  /** Host name; if absent, that of the snapshot, or for an image the name or id of the sandbox. */
  hostname?: string | undefined
  /** CPU cores, from 0.01. */
  cpus?: number | undefined
  memory?: Size | undefined
  /** What may be written to the root file system. */
  disk?: Size | undefined
  /** Processes and threads. */
  pids?: number | undefined
  /** Descriptors of each process. */
  openFiles?: number | undefined
  /** What it may reach: nothing if absent. */
  network?: NetworkOption | undefined
  /** Headers that are put into its requests outside of it, by DOMAIN:HEADER. */
  secrets?: Secrets | undefined
  /** Labels for programs. */
  metadata?: Record<string, string> | undefined
  /** Keep its state after every command and cell; a number is how many steps. */
  autoCheckpoint?: AutoCheckpoint | number | undefined
  /** Let processes in the sandbox fork, snapshot and roll it back. */
  selfControl?: SelfControl | undefined
  /** Names of volumes by their directories in the sandbox, with `:ro` those that it cannot change. */
  volumes?: Record<string, string> | undefined
  /** Isolation layers that must be on. */
  require?: readonly string[] | undefined
}

/** Returns the number of MiB of a size. */
export function mebibytes(field: string, size: Size | undefined): number | undefined {
  if (size === undefined) return undefined
  const units: Record<string, number> = { '': 1, k: 1 / 1024, m: 1, g: 1024, t: 1024 * 1024 }
  const match = typeof size === 'number' ? [String(size), String(size), ''] : /^(\d+(?:\.\d+)?) ?(?:([kmgt])(?:ib|b)?)?$/i.exec(size)
  const value = match ? Math.ceil(Number(match[1]) * (units[(match[2] ?? '').toLowerCase()] as number)) : Number.NaN
  if (!Number.isFinite(value) || value < 0) {
    throw new InvalidRequest(`${JSON.stringify(size)} is not a size: say a number of MiB, or a text such as "512MiB" or "2GiB"`, {
      code: 'invalid_argument',
      field,
    })
  }
  return value
}

/** @internal Returns the lifecycle of a request, or undefined if nothing of it is asked for. */
export function lifecycleBody(o: Lifetime): Record<string, unknown> | undefined {
  return someOf({
    ttl_ms: o.ttl,
    idle_timeout_ms: o.idleTimeout,
    idle_action: o.idleAction,
    auto_wake: o.autoWake,
    keep_snapshots: o.keepSnapshots,
    snapshot_max_age_ms: o.snapshotMaxAge,
  })
}

function someOf(doc: Record<string, unknown>): Record<string, unknown> | undefined {
  return Object.values(doc).some((value) => value !== undefined) ? doc : undefined
}

function mountOf(path: string, text: string): Record<string, unknown> {
  const match = /^([^:]+)(:ro)?$/.exec(text)
  if (!match) throw new InvalidRequest(`${JSON.stringify(text)} is not the name of a volume, or one with :ro`, { code: 'invalid_argument', field: 'volumes' })
  return { volume: match[1], path, read_only: match[2] ? true : undefined }
}

/** @internal */
export function createBody(o: CreateOptions): Record<string, unknown> {
  const limits = {
    cpus: o.cpus,
    memory_mib: mebibytes('memory', o.memory),
    disk_mib: mebibytes('disk', o.disk),
    pids: o.pids,
    open_files: o.openFiles,
  }
  const self = o.selfControl
  return {
    image: o.image ?? 'python',
    name: o.name,
    env: o.env,
    secret_env: o.secretEnv,
    hostname: o.hostname,
    limits: someOf(limits),
    lifecycle: lifecycleBody(o),
    metadata: o.metadata,
    network: networkBody(o.network, o.secrets),
    auto_checkpoint: typeof o.autoCheckpoint === 'number' ? { keep: o.autoCheckpoint } : o.autoCheckpoint,
    self_control: self,
    volumes: o.volumes && Object.entries(o.volumes).map(([path, text]) => mountOf(path, text)),
    require: o.require,
  }
}
