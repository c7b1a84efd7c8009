import { mapMembers, type components } from './generated/openapi.js'

type Schemas = components['schemas']

export type SandboxInfo = Schemas['Sandbox']
export type SandboxState = Schemas['State']
export type SnapshotInfo = Schemas['Snapshot']
export type SnapshotState = Schemas['SnapshotState']
export type ImageInfo = Schemas['Image']
export type Identity = Schemas['Identity']
export type FileInfo = Schemas['FileInfo']
export type FileEvent = Schemas['FileEvent']
export type FileEvents = Schemas['FileEvents']
export type ProcessInfo = Schemas['Process']
export type ContextInfo = Schemas['Context']
export type Stats = Schemas['Stats']
export type Diff = Schemas['Diff']
export type MergeResult = Schemas['MergeResult']
export type MergeStrategy = Schemas['MergeStrategy']
export type TreeNode = Schemas['TreeNode']
export type Step = Schemas['Step']
export type BisectResult = Schemas['BisectResult']
export type SandboxEvent = Schemas['Event']
export type EventKind = Schemas['EventKind']
export type SearchResult = Schemas['SearchResult']
export type PortInfo = Schemas['Port']
export type AuditEntry = Schemas['AuditEntry']
export type AuditReport = Schemas['AuditReport']
export type Health = Schemas['Health']
export type Progress = Schemas['Progress']
export type Position = Schemas['Position']
export type AutoCheckpoint = Schemas['AutoCheckpoint']
export type SelfControl = Schemas['SelfControl']
export type IdleAction = Schemas['IdleAction']

const camelNames = new Map<string, string>()

function camel(name: string): string {
  let known = camelNames.get(name)
  if (known === undefined) {
    known = name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())
    camelNames.set(name, known)
  }
  return known
}

/** Gives the members of a document of the daemon the names of JavaScript. Keys of maps, which are the user's, stay. */
export function fromWire<T>(doc: unknown): T {
  return renamed(doc) as T
}

function renamed(doc: unknown): unknown {
  if (Array.isArray(doc)) return doc.map(renamed)
  if (doc === null || typeof doc !== 'object') return doc
  const out: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(doc)) {
    const member = camel(name)
    out[member] = mapMembers.has(member) ? value : renamed(value)
  }
  return out
}
