export { connect, Client, type ListOptions as SandboxListOptions, type SnapshotListOptions } from './client.js'
export type { ConnectOptions } from './address.js'
export type { OwnerOptions } from './lease.js'
export { Sandbox } from './sandbox.js'
export type { BuildOptions, DiffOptions, EventOptions, ForkOptions, MergeOptions, OnClient, RestoreOneOptions, SnapshotOptions } from './sandbox.js'
export type { CreateOptions, Lifetime, Size } from './create.js'
export { Snapshot, Sandboxes, type PackOptions, type PushResult, type RestoreOptions, type UnpackOptions } from './snapshot.js'
export { ExecStream, type Command, type CommandOptions, type ExecOptions, type Input, type Output, type Result } from './exec.js'
export { Attachment, Process, Processes } from './processes.js'
export type { KeptOutput, OutputOptions, PtyOptions, SignalOptions, StartOptions } from './processes.js'
export { CodeError, Context, Contexts, RichResult } from './code.js'
export type { ContextOptions, Execution, ExecutionError, Language, RunCodeOptions } from './code.js'
export { Exploration } from './explore.js'
export type {
  Attempt, ExplorationEvent, ExplorationInfo, ExplorationState, ExploreOptions, ExplorePlan, ExploreScore, ExploreSearch, ExploreVariant,
} from './explore.js'
export { Files, type FileOptions, type ListOptions, type SearchOptions, type WatchOptions, type WriteOptions } from './files.js'
export { Port, type Forward, type PortOptions, type PublishedPort, type PublishOptions } from './ports.js'
export { Images, type MakeImageOptions } from './images.js'
export { Network } from './network.js'
export type { NetworkLogEntry, NetworkOption, NetworkProfile, NetworkRequest, NetworkTestResult, SandboxNetwork, Secrets } from './network.js'
export { Held, SecretStore, type HeldRequest, type Secret, type SecretOptions } from './secrets.js'
export { Volumes, type Volume, type VolumeOptions } from './volumes.js'
export { drawTree } from './tree.js'
export {
  CommandError, Conflict, ExploreError, ForkError, InvalidRequest, LimitExceeded, NotFound, PermissionDenied, RametError, SandboxGone, Timeout, Unavailable,
  VersionMismatch,
} from './errors.js'
export type { Code, Exceeded } from './errors.js'
export type { CallOptions, ChangeOptions } from './transport.js'

export { version } from './version.js'
export type {
  AuditEntry, AuditReport, AutoCheckpoint, BisectResult, ContextInfo, Diff, EventKind, FileEvent, FileEvents, FileInfo, Health, Identity,
  IdleAction, ImageInfo, MergeResult, MergeStrategy, PortInfo, ProcessInfo, Progress, SandboxEvent, SandboxInfo, SandboxState, SearchResult, SelfControl,
  SnapshotInfo, SnapshotState, Stats, Step, TreeNode,
} from './models.js'
