// What the adapters of frameworks have in common.
import { connect, type Client } from '../client.js'
import type { CreateOptions } from '../create.js'
import { InvalidRequest, Timeout } from '../errors.js'
import type { CommandOptions, Result } from '../exec.js'
import type { BuildOptions, ForkOptions, Sandbox } from '../sandbox.js'
import type { CallOptions } from '../transport.js'

/** How an adapter runs commands. */
export interface AdapterOptions extends CommandOptions {
  /** Characters of output that a command returns, of its beginning and its end; what lies between is left out. */
  maxOutput?: number | undefined
}

/** How an adapter makes its sandbox, and how it runs commands. */
export interface AdapterCreateOptions extends AdapterOptions, Omit<CreateOptions, 'env'>, BuildOptions {
  /** Makes the sandbox; without it an own client does, with a lease of a minute: the daemon ends the sandboxes of a killed program. */
  client?: Client | undefined
  /** Environment of the commands of the sandbox. */
  env?: Record<string, string> | undefined
}

const leaseMs = 60_000

/** Adapters that were made together. With `await using` all of them are closed at the end of the block. */
export class Forks<A extends AsyncDisposable> extends Array<A> implements AsyncDisposable {
  static override get [Symbol.species]() {
    return Array
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.map((one) => one[Symbol.asyncDispose]()))
  }
}

/** A sandbox as an adapter holds it, with the client that is to be ended with it. */
export interface OwnedSandbox {
  sandbox: Sandbox
  own: Client | undefined
}

/** Makes a sandbox, labelled with the name of the framework, and wraps it. If that fails the sandbox is gone as well. */
export async function createWrapped<A>(framework: string, options: AdapterCreateOptions, wrap: (owned: OwnedSandbox) => A | Promise<A>): Promise<A> {
  const { client, cwd: _cwd, user: _user, timeout: _timeout, maxOutput: _maxOutput, ...create } = options
  const own = client === undefined ? connect({ lease: leaseMs, owner: framework }) : undefined
  try {
    const sandbox = await (client ?? (own as Client)).create({ image: 'python', ...create })
    const owned = { sandbox, own }
    try {
      return await wrap(owned)
    } catch (error) {
      await endOwned(owned)
      throw error
    }
  } catch (error) {
    own?.close()
    throw error
  }
}

/** Ends a sandbox that was made through this program, and with its own client all that was forked from it. */
export async function endOwned({ sandbox, own }: OwnedSandbox): Promise<void> {
  if (own) await own[Symbol.asyncDispose]()
  else await sandbox[Symbol.asyncDispose]()
}

/** Forks a sandbox, and wraps each child. */
export async function forkAll<A extends AsyncDisposable>(sandbox: Sandbox, options: number | ForkOptions, wrap: (child: Sandbox) => A): Promise<Forks<A>> {
  const children = typeof options === 'number' ? await sandbox.fork(options) : await sandbox.fork(options)
  const forks = new Forks<A>()
  for (const child of children) forks.push(wrap(child))
  return forks
}

/** Checks how much output is kept. */
export function outputLimit(options: AdapterOptions, otherwise: number): number {
  const limit = options.maxOutput ?? otherwise
  if (!Number.isInteger(limit) || limit < 200) {
    throw new InvalidRequest(`${limit} is not a number of characters from 200 on`, { code: 'invalid_argument', field: 'maxOutput' })
  }
  return limit
}

/** Keeps the beginning and the end of a text of any length. */
export class BoundedText {
  private head = ''
  private tail: string[] = []
  private tailLength = 0
  private total = 0

  constructor(private readonly limit: number) {}

  add(text: string): void {
    this.total += text.length
    const room = Math.ceil(this.limit / 2) - this.head.length
    if (room > 0) {
      this.head += text.slice(0, room)
      text = text.slice(room)
    }
    if (text === '') return
    this.tail.push(text)
    this.tailLength += text.length
    while (this.tailLength - (this.tail[0] as string).length >= this.limit / 2) this.tailLength -= (this.tail.shift() as string).length
  }

  get truncated(): boolean {
    return this.total > this.limit
  }

  /** The text. If some of it is left out, a line says so, and there are whole lines around it where there are lines. */
  toString(): string {
    const rest = this.tail.join('')
    if (!this.truncated) return this.head + rest
    // Half of a pair of surrogates is no character, and some servers refuse it.
    const head = this.head.slice(0, this.head.lastIndexOf('\n') + 1) || `${this.head.replace(/[\ud800-\udbff]$/, '')}\n`
    const end = rest.slice(-Math.floor(this.limit / 2))
    const tail = end.slice(end.indexOf('\n') + 1).replace(/^[\udc00-\udfff]/, '') || end
    const out = this.total - head.length - tail.length
    return `${head}[${out} characters are left out: write the output to a file, and read parts of it]\n${tail}`
  }
}

/** How a command ended, with as much of its output as was asked for. */
export interface Ran {
  stdout: BoundedText
  stderr: BoundedText
  exitCode: number
  /** Why it was ended, if its time was over. */
  timedOut: string | undefined
}

/** The exit code of a command whose time was over, as of timeout(1). */
export const timedOutCode = 124

/** Returns a command whose standard error goes to its standard output, so that both are in the order in which they were written. */
export function merged(command: string): string {
  return `exec 2>&1\n${command}`
}

/** Runs a command to its end in bounded memory. One whose time is over, or whose signal is aborted, is killed with its process group. */
export async function runBounded(sandbox: Sandbox, command: string, options: CommandOptions & CallOptions, limit: number): Promise<Ran> {
  const ran: Ran = { stdout: new BoundedText(limit), stderr: new BoundedText(limit), exitCode: 0, timedOut: undefined }
  const stream = sandbox.exec(command, { ...options, stream: true })
  for await (const { stream: name, text } of stream) ran[name].add(text)
  try {
    ran.exitCode = ((await stream.result) as Result).exitCode
  } catch (error) {
    if (!(error instanceof Timeout)) throw error
    ran.exitCode = timedOutCode
    ran.timedOut = error.message
  }
  return ran
}
