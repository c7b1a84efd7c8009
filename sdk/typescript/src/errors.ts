import type { components } from './generated/openapi.js'
import { interfaceVersion } from './generated/openapi.js'
import { version } from './version.js'

/** The kind of an error, for programs; none is ever renamed. The last two are those of calls with `check`. */
export type Code = components['schemas']['Code'] | 'command_failed' | 'code_failed'
/** The quota that was exceeded. */
export type Exceeded = components['schemas']['Exceeded']

/** What an error has besides its message. */
export interface ErrorDetails {
  code: Code
  /** Field or option at fault. */
  field?: string | undefined
  /** HTTP status of the answer; absent if there was none. */
  status?: number | undefined
  /** Identifies the request in the daemon's log. */
  requestId?: string | undefined
  exceeded?: Exceeded | undefined
  /** What to do about it; by default that of the code. */
  remedy?: string | undefined
  cause?: unknown
}

/** An error of Ramet. Programs decide by its class or its `code`. */
export class RametError extends Error {
  readonly code: Code
  readonly field: string | undefined
  readonly status: number | undefined
  readonly requestId: string | undefined
  readonly exceeded: Exceeded | undefined
  /** What to do about it, if that is known. */
  readonly remedy: string | undefined
  /** The message without the name of the field. */
  readonly detail: string

  constructor(detail: string, details: ErrorDetails) {
    super(named(details.field, detail), details.cause === undefined ? undefined : { cause: details.cause })
    this.name = new.target.name
    this.detail = detail
    this.code = details.code
    this.field = details.field
    this.status = details.status
    this.requestId = details.requestId
    this.exceeded = details.exceeded
    this.remedy = details.remedy ?? remedies[details.code]
  }
}

/** The message of an error about a field, which the daemon names inside of some texts. */
function named(field: string | undefined, detail: string): string {
  const text = detail.replaceAll('body.', '')
  return field && !text.startsWith(`${field}: `) && !/[:;] $/.test(text.split(`${field}: `)[0] ?? '') ? `${field}: ${text}` : text
}

/** There is no such sandbox, snapshot, image, process or file. */
export class NotFound extends RametError {}
/** The state of a thing, another thing that uses it, or a taken name prevents the request. */
export class Conflict extends RametError {}
/** A limit or quota, memory or disk is exhausted. */
export class LimitExceeded extends RametError {}
/** The caller, or the user in the sandbox, does not have the right. */
export class PermissionDenied extends RametError {}
/** The sandbox ended, while it was used or before; the message has the reason if it is known. */
export class SandboxGone extends NotFound {}
/** A field of the request is invalid, or not possible on this machine. */
export class InvalidRequest extends RametError {}
/** The daemon, or something that it needs, cannot be reached. */
export class Unavailable extends RametError {}

/** The daemon has another version of the interface than this package: they do not understand each other. */
export class VersionMismatch extends RametError {}

/** A deadline passed. If it was that of a command, `result` has its output until then. */
export class Timeout extends RametError {
  /** The command or cell that was ended, with its output until then. */
  readonly result: unknown

  constructor(detail: string, details: Omit<ErrorDetails, 'code'> & { code?: Code; result?: unknown } = {}) {
    super(detail, { ...details, code: details.code ?? 'timeout' })
    this.result = details.result
  }
}

const classes: Partial<Record<Code, new (detail: string, details: ErrorDetails) => RametError>> = {
  not_found: NotFound,
  name_taken: Conflict,
  conflict: Conflict,
  wrong_state: Conflict,
  precondition_failed: Conflict,
  limit_exceeded: LimitExceeded,
  out_of_memory: LimitExceeded,
  out_of_disk: LimitExceeded,
  permission_denied: PermissionDenied,
  unauthenticated: PermissionDenied,
  forbidden: PermissionDenied,
  timeout: Timeout,
  sandbox_died: SandboxGone,
  invalid_argument: InvalidRequest,
  command_not_found: InvalidRequest,
  not_executable: InvalidRequest,
  hostile_archive: InvalidRequest,
  unsupported: InvalidRequest,
  isolation_refused: InvalidRequest,
  unavailable: Unavailable,
}

const remedies: Partial<Record<Code, string>> = {
  unauthenticated: 'set RAMET_TOKEN, or connect to the socket of your own daemon',
  forbidden: 'use a token with the scope that the operation needs',
  name_taken: 'choose another name, or destroy the thing that has it',
  wrong_state: 'look at the state of the sandbox: a paused one has to be resumed, a hibernated one woken',
  precondition_failed: 'read the file again: it was changed meanwhile',
  limit_exceeded: 'destroy sandboxes that are not needed, or have the quota raised',
  out_of_memory: 'create the sandbox with more memory, or end others',
  out_of_disk: 'remove files or snapshots, or create the sandbox with more disk',
  sandbox_died: 'create or restore another sandbox; its state is that of the last snapshot',
  isolation_refused: 'see what this machine can provide with: ramet doctor',
  unavailable: 'look whether the daemon runs with: ramet doctor',
  internal: "look for the request in the daemon's log",
}

/** A problem document (RFC 9457), or an error in an answer. */
export interface Problem {
  code: Code
  detail: string
  status?: number
  field?: string
  request_id?: string
  exceeded?: Record<string, unknown>
}

// What a daemon says about a route, member or parameter that it does not know.
const unknown = /^no route "|: unexpected property$|^there is no query parameter /

/** Returns an error if a daemon's version of the interface is none that this package understands. */
export function mismatchOf(theirs: string | undefined): VersionMismatch | undefined {
  if (!theirs || theirs.split('.')[0] === interfaceVersion.split('.')[0]) return undefined
  const detail = `the daemon has version ${theirs.slice(0, 20)} of the interface, and this package ${interfaceVersion}`
  return new VersionMismatch(detail, { code: 'unsupported', remedy: "use the package of the daemon's release, or another daemon" })
}

/** Reports whether a daemon's version of the interface, or none, is older than that of this package. */
function isOlder(theirs: string): boolean {
  const [a, b] = [theirs.split('.').map(Number), interfaceVersion.split('.').map(Number)]
  const at = b.findIndex((part, i) => part !== a[i])
  return at >= 0 && !((a[at] as number) > (b[at] as number))
}

/**
 * Returns the error that a problem document shows, of the class of its code unless another is given. `theirs` is the
 * version of the interface that the daemon tells, empty if it tells none; absent if it did not answer the request itself.
 */
export function errorOf(problem: Problem, kind?: new (detail: string, details: ErrorDetails) => RametError, theirs?: string): RametError {
  const details: ErrorDetails = {
    code: problem.code,
    field: problem.field,
    status: problem.status,
    requestId: problem.request_id,
    exceeded: exceededOf(problem.exceeded),
  }
  if (theirs !== undefined && (problem.code === 'not_found' || problem.code === 'invalid_argument') && unknown.test(problem.detail) && isOlder(theirs)) {
    const remedy = `the daemon does not know what this version of the package, ${version}, asks for: it is older, and has to be updated`
    return new InvalidRequest(problem.detail, { ...details, remedy })
  }
  return new (kind ?? classes[problem.code] ?? RametError)(problem.detail, details)
}

function exceededOf(doc: Record<string, unknown> | undefined): Exceeded | undefined {
  if (!doc) return undefined
  const { retry_s: retryS, retryS: renamed, ...rest } = doc
  const retry = retryS ?? renamed
  return { ...rest, ...(retry === undefined ? {} : { retryS: retry }) } as unknown as Exceeded
}

/** A command that ended with another exit code than 0, of a call with `check`. */
export class CommandError extends RametError {
  constructor(
    readonly command: string | readonly string[],
    /** How it ended, with its output. */
    readonly result: { readonly exitCode: number; readonly stdout: string; readonly stderr: string; readonly signal: string },
  ) {
    const text = typeof command === 'string' ? command : command.join(' ')
    const end = result.signal ? `was ended by ${result.signal}` : `ended with exit code ${result.exitCode}`
    const tail = result.stderr.trimEnd().slice(-2000)
    super(`the command ${JSON.stringify(text.slice(0, 200))} ${end}${tail ? `: ${tail}` : ''}`, { code: 'command_failed' })
  }
}

/** An exploration failed, or was interrupted by the end of the daemon. */
export class ExploreError<X extends { id: string; state: string } = { id: string; state: string }> extends RametError {
  constructor(
    /** The exploration, with the table of its attempts. */
    readonly exploration: X,
    /** Why it failed. */
    reason: RametError,
  ) {
    super(`exploration ${exploration.id} ${exploration.state}: ${reason.message}`, { code: reason.code, exceeded: reason.exceeded, remedy: reason.remedy, cause: reason })
  }
}

/** Some of the children of a fork, or of the sandboxes of a restore, could not be made. */
export class ForkError<S = unknown> extends RametError {
  constructor(
    /** The sandboxes that were made. They run until they are destroyed. */
    readonly children: readonly S[],
    /** Why the others were not made. */
    readonly errors: readonly RametError[],
  ) {
    const first = errors[0] as RametError
    super(`${errors.length} of ${errors.length + children.length} sandboxes could not be made: ${first.message}`, {
      code: first.code,
      exceeded: first.exceeded,
      remedy: first.remedy,
      cause: first,
    })
  }
}
