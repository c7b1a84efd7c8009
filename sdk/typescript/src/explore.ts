import { ExploreError, errorOf, InvalidRequest, type Problem } from './errors.js'
import type { Command } from './exec.js'
import type { components } from './generated/openapi.js'
import { mebibytes, type Size } from './create.js'
import { fromWire } from './models.js'
import { holdOf, networkBody, type NetworkOption } from './network.js'
import type { Sandbox } from './sandbox.js'
import { Sandboxes } from './snapshot.js'
import { segment, wasLost, type CallOptions, type ChangeOptions, type Request, type Transport } from './transport.js'

type Schemas = components['schemas']

export type Attempt = Schemas['Attempt']
export type ExplorationEvent = Schemas['ExplorationEvent']
export type ExplorationInfo = Schemas['Exploration']
export type ExplorationState = Schemas['ExplorationState']

/** What is run: a command, or code. */
interface Run {
  /** A text for the shell, or a program with its arguments. */
  command?: Command | undefined
  /** Code for an interpreter. */
  code?: string | undefined
}

/** How an attempt differs from others. Its command or code is run instead of that of the plan; its args, variables and files are added. */
export interface ExploreVariant extends Run {
  /** For people: tables call the attempt so. */
  name?: string | undefined
  /** Arguments; those of a text for the shell are $1, $2 and so on. */
  args?: readonly (string | number)[] | undefined
  env?: Record<string, string | number> | undefined
  /** Contents, by absolute paths. */
  files?: Record<string, string | Uint8Array> | undefined
  /** A text for standard input. */
  stdin?: string | undefined
}

/** How an attempt is scored. With a command or code, that is run in the attempt afterwards, and what it says is scored. */
export interface ExploreScore extends Run {
  /**
   * `exit_code` (1 if it is 0, else 0), `number` (the last line of the output), `regexp` (the number in the first group of the last match of
   * `pattern`), `json` (the number at `path`, such as `metrics.loss`), `value` (of the last expression of code) or `duration` (seconds).
   */
  by: Schemas['ExploreBy']
  pattern?: string | undefined
  path?: string | undefined
  /** The text is that of the standard error. */
  stderr?: boolean | undefined
  /** The text is that of this file in the attempt. */
  file?: string | undefined
  /** Which scores are good; `max` if absent, and `min` by duration. */
  goal?: 'max' | 'min' | undefined
  /** An attempt with a lower score has failed. */
  atLeast?: number | undefined
  /** An attempt with a higher score has failed. */
  atMost?: number | undefined
  /** Attempts whose run fails are scored, too, and may win. */
  failed?: boolean | undefined
}

/** Which attempts run on, and how often; the members are those of the REST interface. */
export type ExploreSearch = Schemas['ExploreSearch']

/** What an exploration does: a sandbox is forked into attempts, which run a command or code and are scored. */
export interface ExplorePlan extends ExploreVariant {
  /** Of the code. */
  language?: 'python' | 'node' | 'bash' | undefined
  /** Name of the context that runs the code. */
  context?: string | undefined
  cwd?: string | undefined
  user?: string | undefined
  /** Milliseconds for each run, which has failed then. */
  timeout?: number | undefined
  /** How attempts differ: they get the variants in order. */
  variants?: readonly ExploreVariant[] | undefined
  /** Attempts of the first round; as many as variants if absent. */
  width?: number | undefined
  /** By the exit code if absent. A text is the `by` alone. */
  score?: ExploreScore | Schemas['ExploreBy'] | undefined
  /** One round in which all run to their end if absent. A text is the `strategy` alone. */
  search?: ExploreSearch | Schemas['ExploreStrategy'] | undefined
  /** How many of the best attempts win; 1 if absent. */
  winners?: number | undefined
  /** What becomes of the winners: `promote` gives the state of the best one to the sandbox, `merge` brings the files of all to it. */
  then?: Schemas['ExploreThen'] | undefined
  /** How files are merged. */
  merge?: Schemas['ExploreMerge'] | undefined
  /** Which attempts are left as sandboxes; the winners if nothing becomes of them, else none. */
  keep?: Schemas['ExploreKeep'] | undefined
  /** Compare attempts with the sandbox: all files, or those at these paths. */
  diff?: boolean | readonly string[] | undefined
  /** Compare variables of interpreters, too. */
  variables?: boolean | undefined
  /** Attempts whose commands run at once. */
  parallel?: number | undefined
  /** A round may have as few attempts as this, if a quota or the memory of the host allows no more. */
  minWidth?: number | undefined
  /** Attempts in all rounds. */
  maxAttempts?: number | undefined
  /** Generations of attempts. */
  maxDepth?: number | undefined
  /** Milliseconds for the exploration: attempts that have not ended by then are stopped. */
  maxTime?: number | undefined
  /** Memory of all attempts together: beyond it, the one that has the most is stopped. */
  maxMemory?: Size | undefined
  /** Labels of the attempts, besides those of the sandbox. */
  metadata?: Record<string, string> | undefined
  /** What attempts may reach, if that differs from the sandbox. */
  network?: NetworkOption | undefined
  /** Requests of attempts that change something wait until the attempt is promoted, and are dropped with it. */
  hold?: boolean | 'writes' | undefined
  /** What the first attempt was answered is the answer to others that ask the same. */
  record?: boolean | undefined
  /** Commands have the secret variables of the sandbox. */
  secretEnv?: boolean | undefined
}

export interface ExploreOptions extends ChangeOptions {
  /** False: return when the first attempts are there. The exploration goes on without its client then; else `signal` cancels it. */
  wait?: boolean | undefined
}

/** An exploration, which belongs to the daemon: it goes on when its client ends. Iterating over it yields its events until it has ended. */
export class Exploration implements AsyncIterable<ExplorationEvent> {
  readonly id: string
  private known: ExplorationInfo
  private readonly kept = new Map<string, Sandbox>()
  private readonly transport: Transport

  /** @internal */
  constructor(
    private readonly sandbox: Sandbox,
    info: ExplorationInfo,
  ) {
    this.id = info.id
    this.transport = sandbox.client.transport
    this.known = info
    this.take(info)
  }

  /** State, as it was last seen. */
  get state(): ExplorationState {
    return this.known.state
  }
  /** As it was last seen. */
  get lastInfo(): ExplorationInfo {
    return this.known
  }
  /** The attempts, in the order of their indexes, as they were last seen. */
  get attempts(): Attempt[] {
    return this.known.children
  }
  /** The attempts that won, the best one first. */
  get winners(): Attempt[] {
    return this.known.winners.flatMap((index) => this.attempts.find((attempt) => attempt.index === index) ?? [])
  }
  /** The attempt that won, if there is one. */
  get winner(): Attempt | undefined {
    return this.winners[0]
  }
  /** The attempts that are still there when it has ended, the winners first. */
  get sandboxes(): Sandboxes {
    const out = new Sandboxes()
    for (const id of new Set([...this.winners, ...this.attempts].map((attempt) => attempt.sandbox ?? ''))) {
      const sandbox = this.kept.get(id)
      if (sandbox) out.push(sandbox)
    }
    return out
  }

  /** As it was last seen, for `JSON.stringify`. */
  toJSON(): ExplorationInfo {
    return this.known
  }

  /** The table of its attempts, as text. */
  toString(): string {
    return tableOf(this.known)
  }

  /** Asks for its present state. */
  async info(options: CallOptions = {}): Promise<ExplorationInfo> {
    return this.take(await this.transport.call<ExplorationInfo>(this.request('GET', '', options))).known
  }

  /** Waits for its end. One that failed, or was interrupted by the end of the daemon, is an ExploreError. */
  async wait(options: CallOptions = {}): Promise<this> {
    if (!isFinal(this.state)) this.take(await this.transport.call<ExplorationInfo>({ ...this.request('GET', '', options), query: { wait: true } }))
    if (this.state !== 'failed' && this.state !== 'interrupted') return this
    const reason = this.known.error ?? { code: 'unavailable', detail: 'the daemon ended' }
    throw new ExploreError(this, errorOf(reason as unknown as Problem))
  }

  /** Yields its events, until it has ended. */
  async *events(options: CallOptions & { since?: number | undefined; follow?: boolean | undefined } = {}): AsyncGenerator<ExplorationEvent, void, undefined> {
    let since = options.since ?? 0
    for (let lost = 0; ; ) {
      const query = { since, follow: String(options.follow ?? true) }
      try {
        for await (const event of this.transport.events({ ...this.request('GET', '/events', options), query })) {
          if (event.name === 'end') return
          if (event.name !== 'event') continue
          lost = 0
          const found = fromWire<ExplorationEvent>(event.data)
          since = found.seq
          yield found
        }
        return
      } catch (error) {
        if (!wasLost(error) || lost++ >= 2) throw error
      }
    }
  }

  [Symbol.asyncIterator](): AsyncGenerator<ExplorationEvent, void, undefined> {
    return this.events()
  }

  /** Stops it, and returns it when its attempts are gone. The table has what they did until then. */
  async cancel(options: ChangeOptions = {}): Promise<this> {
    return this.take(await this.transport.call<ExplorationInfo>(this.request('POST', '/cancel', options)))
  }

  /** Forgets it. One that has not ended is cancelled before. */
  async remove(options: ChangeOptions = {}): Promise<void> {
    await this.transport.call(this.request('DELETE', '', options))
  }

  private request(method: Request['method'], rest: string, { signal, idempotencyKey }: ChangeOptions): Request {
    return { method, path: `/v1/explorations/${segment(this.id)}${rest}`, signal, idempotencyKey, repeatable: true }
  }

  private take(info: ExplorationInfo): this {
    this.known = info
    if (!isFinal(info.state)) return this
    for (const { kept, sandbox } of info.children) {
      if (kept && sandbox && !this.kept.has(sandbox)) this.kept.set(sandbox, this.sandbox.adopt(sandbox))
    }
    return this
  }
}

function isFinal(state: ExplorationState): boolean {
  return state !== 'running' && state !== 'finishing'
}

/** @internal Returns the document of a plan. */
export function planBody(plan: Command | ExplorePlan): Record<string, unknown> {
  const o: ExplorePlan = typeof plan === 'string' || Array.isArray(plan) ? { command: plan as Command } : (plan as ExplorePlan)
  const run = {
    ...runOf(o), language: o.language, context: o.context, args: o.args?.map(String), env: envOf(o.env), files: filesOf(o.files),
    cwd: o.cwd, user: o.user, stdin: o.stdin, timeout_ms: o.timeout,
  }
  const limits = {
    parallel: o.parallel, min_width: o.minWidth, attempts: o.maxAttempts, depth: o.maxDepth,
    timeout_ms: o.maxTime, memory_mib: mebibytes('maxMemory', o.maxMemory),
  }
  const paths = Array.isArray(o.diff) ? (o.diff as string[]) : undefined
  return {
    run: some(run), width: o.width, score: scoreOf(o.score), winners: o.winners, then: o.then, merge: o.merge, keep: o.keep,
    search: typeof o.search === 'string' ? { strategy: o.search } : o.search,
    variants: o.variants?.map((one) => ({ name: one.name, ...runOf(one), args: one.args?.map(String), env: envOf(one.env), files: filesOf(one.files), stdin: one.stdin })),
    diff: o.diff || o.variables ? { paths, variables: o.variables } : undefined,
    limits: some(limits), metadata: o.metadata, network: networkBody(o.network), hold: holdOf(o.hold), record: o.record, secret_env: o.secretEnv,
  }
}

function scoreOf(score: ExplorePlan['score']): Record<string, unknown> | undefined {
  if (score === undefined || typeof score === 'string') return score && { by: score }
  const { by, pattern, path, stderr, file, goal, atLeast, atMost, failed } = score
  return { by, pattern, path, stderr, file, goal, failed, at_least: atLeast, at_most: atMost, command: some(runOf(score)) }
}

function runOf({ command, code }: Run): Record<string, unknown> {
  if (command !== undefined && code !== undefined) throw new InvalidRequest('there is a command and code: give one of them', { code: 'invalid_argument', field: 'code' })
  return { shell: typeof command === 'string' ? command : undefined, argv: typeof command === 'string' ? undefined : command, code }
}

function envOf(env: Record<string, string | number> | undefined): Record<string, string> | undefined {
  return env && Object.fromEntries(Object.entries(env).map(([name, value]) => [name, String(value)]))
}

function filesOf(files: Record<string, string | Uint8Array> | undefined): unknown {
  return files && Object.entries(files).map(([path, of]) => (typeof of === 'string' ? { path, text: of } : { path, data: Buffer.from(of).toString('base64') }))
}

function some(doc: Record<string, unknown>): Record<string, unknown> | undefined {
  return Object.values(doc).some((value) => value !== undefined) ? doc : undefined
}

/** Draws the attempts of an exploration as a table. */
function tableOf(info: ExplorationInfo): string {
  const rows = [['', 'attempt', 'state', 'score', 'exit', 'ms', 'files', 'output']]
  for (const one of info.children) {
    const about = one.name || [...Object.entries(one.env ?? {}).map(([name, value]) => `${name}=${value}`), ...(one.args ?? [])].join(' ')
    const shown = one.value || lastLine(one.stdout) || one.error?.detail || lastLine(one.stderr)
    rows.push([
      one.won ? '*' : '', `${one.index}${one.parent === undefined ? '' : ` of ${one.parent}`}${about ? ` ${about}` : ''}`,
      one.stoppedEarly && one.state !== 'stopped' ? `${one.state}, early` : one.state, one.score === undefined ? '' : String(Number(one.score.toPrecision(6))),
      String(one.exitCode ?? ''), one.durationMs === undefined ? '' : one.durationMs.toFixed(0), String((one.diffTotal || one.diff?.length) ?? '').replace(/^0$/, ''), shown.slice(0, 80),
    ])
  }
  const columns = (rows[0] as string[]).map((_, at) => at).filter((at) => rows.slice(1).some((row) => row[at] !== ''))
  const widths = columns.map((at) => Math.max(...rows.map((row) => (row[at] as string).length)))
  const lines = rows.map((row) => columns.map((at, i) => (row[at] as string).padEnd(widths[i] as number)).join('  ').trimEnd())
  return [`${info.id} ${info.state}${info.ended ? `: ${info.ended}` : ''}`, ...lines].join('\n')
}

function lastLine(text: string): string {
  return text.trimEnd().split('\n').at(-1) as string
}
