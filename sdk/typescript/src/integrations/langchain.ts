import { BaseToolkit, tool, type StructuredToolInterface, type ToolRunnableConfig } from '@langchain/core/tools'
import { InvalidRequest, RametError, SandboxGone, Unavailable } from '../errors.js'
import type { ForkOptions, Sandbox } from '../sandbox.js'
import type { ChangeOptions } from '../transport.js'
import {
  BoundedText, createWrapped, endOwned, forkAll, merged, outputLimit, runBounded, type AdapterCreateOptions, type AdapterOptions, type Forks, type OwnedSandbox,
} from './adapter.js'

export type { Forks } from './adapter.js'

export interface RametToolkitOptions extends AdapterOptions {
  /** Milliseconds after which a command or cell is killed; 30 minutes if absent, 0 for no limit. */
  timeout?: number | undefined
  /** Characters of output in an answer; 24,000 if absent. */
  maxOutput?: number | undefined
  /** How many children the model may have at once; 8 if absent, and 0 leaves out the tools for forks. */
  maxForks?: number | undefined
}

export interface RametToolkitCreateOptions extends AdapterCreateOptions, RametToolkitOptions {}

const defaultTimeout = 30 * 60_000
const defaultOutput = 24_000
const defaultForks = 8

interface InSandbox {
  sandbox?: string
}

const sandboxField = { type: 'string', description: 'Id of a child that ramet_fork returned; the main sandbox if absent' }

/**
 * Tools of LangChain for one sandbox, and for what the model forks from it: `createAgent({ model, tools: toolkit.tools })`. A tool
 * takes the ids of children that this toolkit made, and of no other sandboxes. `fork` gives toolkits whose sandboxes have all of
 * this running one, for several agents at once.
 */
export class RametToolkit extends BaseToolkit implements AsyncDisposable {
  readonly tools: StructuredToolInterface[]
  private readonly owned: OwnedSandbox
  private readonly options: RametToolkitOptions
  private readonly limit: number
  private readonly maxForks: number
  private readonly children = new Map<string, Sandbox>()
  private running = true

  /** Wraps a sandbox that exists. */
  constructor(sandbox: Sandbox | OwnedSandbox, options: RametToolkitOptions = {}) {
    super()
    this.owned = 'sandbox' in sandbox ? sandbox : { sandbox, own: undefined }
    this.options = options
    this.limit = outputLimit(options, defaultOutput)
    this.maxForks = options.maxForks ?? defaultForks
    if (!Number.isInteger(this.maxForks) || this.maxForks < 0 || this.maxForks > 100) {
      throw new InvalidRequest(`${this.maxForks} is not a number from 0 to 100`, { code: 'invalid_argument', field: 'maxForks' })
    }
    this.tools = this.makeTools()
  }

  /** Makes a sandbox, of the image `python` if none is named. It ends with `close`, or a minute after this program. */
  static async create(options: RametToolkitCreateOptions = {}): Promise<RametToolkit> {
    const { maxForks, ...create } = options
    const { cwd, user, timeout, maxOutput } = options
    return createWrapped('langchain', create, (owned) => new RametToolkit(owned, { cwd, user, timeout, maxOutput, maxForks }))
  }

  /** The sandbox itself, for all else: snapshots, ports, comparisons. */
  get sandbox(): Sandbox {
    return this.owned.sandbox
  }

  /** Makes children that have all of this running sandbox: files, memory and processes. */
  async fork(options: number | ForkOptions = 1): Promise<Forks<RametToolkit>> {
    return forkAll(this.sandbox, options, (child) => new RametToolkit(child, this.options))
  }

  /** Goes on with the state of a child, which is gone then. */
  async promote(child: RametToolkit, options: ChangeOptions = {}): Promise<void> {
    await this.sandbox.promote(child.sandbox, options)
    child.running = false
    await child.endChildren()
  }

  /** Destroys the children that the model made, and the sandbox if it was made through this program. */
  async close(): Promise<void> {
    if (!this.running) return
    this.running = false
    await this.endChildren()
    await endOwned(this.owned)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  private async endChildren(): Promise<void> {
    const left = [...this.children.values()]
    this.children.clear()
    await Promise.all(left.map((child) => child[Symbol.asyncDispose]()))
  }

  private find(ref: string | undefined): Sandbox {
    if (ref === undefined || ref === '' || ref === this.sandbox.id) return this.sandbox
    const found = this.children.get(ref)
    if (found) return found
    const known = [...this.children.keys()].join(', ') || 'none'
    throw new InvalidRequest(`${JSON.stringify(ref)} is no child of this sandbox; there are: ${known}`, { code: 'invalid_argument', field: 'sandbox' })
  }

  private child(ref: string): Sandbox {
    const found = this.find(ref)
    if (found === this.sandbox) throw new InvalidRequest('this is the main sandbox: give the id of a child', { code: 'invalid_argument', field: 'sandbox' })
    return found
  }

  private get calls() {
    const { cwd, env, user, timeout = defaultTimeout } = this.options
    return { cwd, env, user, timeout: timeout || undefined }
  }

  private cut(text: string): string {
    const bounded = new BoundedText(this.limit)
    bounded.add(text)
    return String(bounded)
  }

  /** Makes a tool. What the model can mend is an answer that says so; other errors are the program's. */
  private make<I extends InSandbox>(name: string, description: string, properties: Record<string, unknown>, required: string[], act: (input: I, signal: AbortSignal | undefined) => Promise<string>) {
    const schema = { type: 'object' as const, properties, required, additionalProperties: false } as const
    return tool(
      async (input: unknown, config?: ToolRunnableConfig): Promise<string> => {
        try {
          return await act(input as I, config?.signal)
        } catch (error) {
          if (!(error instanceof RametError) || error instanceof Unavailable) throw error
          if (error instanceof SandboxGone && !this.children.delete((input as I).sandbox ?? '')) throw error // it is the main one
          return `${error.code}: ${error.message}${error.remedy ? ` (${error.remedy})` : ''}`
        }
      },
      { name, description, schema },
    ) as StructuredToolInterface
  }

  private makeTools(): StructuredToolInterface[] {
    const user = this.options.user
    const command = { type: 'string', description: 'Command for /bin/sh' }
    const path = { type: 'string', description: 'Absolute path' }
    const tools = [
      this.make<{ command: string } & InSandbox>(
        'ramet_exec', 'Runs a shell command in the sandbox, and returns its exit code and output.', { command, sandbox: sandboxField }, ['command'],
        async (input, signal) => {
          const ran = await runBounded(this.find(input.sandbox), merged(input.command), { ...this.calls, signal }, this.limit)
          return `exit code ${ran.exitCode}${ran.timedOut === undefined ? '' : ` (${ran.timedOut})`}\n${ran.stdout}`
        },
      ),
      this.make<{ code: string } & InSandbox>(
        'ramet_run_code', 'Runs Python code in an interpreter whose variables stay from call to call, and returns what it prints and the value of the last expression.',
        { code: { type: 'string' }, sandbox: sandboxField }, ['code'],
        async (input, signal) => {
          const output = new BoundedText(this.limit)
          const add = (text: string): void => output.add(text)
          const done = await this.find(input.sandbox).runCode(input.code, { timeout: this.calls.timeout, signal, onStdout: add, onStderr: add })
          const shown = done.results.map((one) => one.text).filter((text) => text !== undefined).join('\n')
          const failed = done.error ? `${done.error.name}: ${done.error.value}\n` : ''
          return this.cut(`${output}${shown && `${shown}\n`}${failed}`) || 'done, without output'
        },
      ),
      this.make<{ path: string } & InSandbox>(
        'ramet_read_file', 'Returns the text of a file.', { path, sandbox: sandboxField }, ['path'],
        async (input, signal) => {
          const [text, decoder] = [new BoundedText(this.limit), new TextDecoder()]
          for await (const part of this.find(input.sandbox).files.readStream(input.path, { user, signal })) text.add(decoder.decode(part, { stream: true }))
          return String(text)
        },
      ),
      this.make<{ path: string; content: string } & InSandbox>(
        'ramet_write_file', 'Writes a text file, and the directories above it.', { path, content: { type: 'string' }, sandbox: sandboxField }, ['path', 'content'],
        async (input, signal) => {
          const { size } = await this.find(input.sandbox).files.write(input.path, input.content, { user, signal })
          return `wrote ${size} bytes to ${input.path}`
        },
      ),
    ]
    return this.maxForks === 0 ? tools : [...tools, ...this.makeForkTools()]
  }

  private makeForkTools(): StructuredToolInterface[] {
    const id = { type: 'string', description: 'Id of a child that ramet_fork returned' }
    return [
      this.make<{ count?: number } & InSandbox>(
        'ramet_fork', 'Makes children of the main sandbox that go on from its present state, with its files, memory and processes, to try several ways. Returns their ids for the other tools.',
        { count: { type: 'integer', minimum: 1, maximum: this.maxForks } }, [],
        async ({ count = 1 }, signal) => {
          if (this.children.size + count > this.maxForks) {
            const remedy = 'promote one of them with ramet_promote, or end some with ramet_destroy'
            throw new RametError(`there are ${this.children.size} children, and there may be ${this.maxForks}`, { code: 'limit_exceeded', remedy })
          }
          const made = await this.sandbox.fork({ count, signal })
          for (const child of made) this.children.set(child.id, child)
          return made.map((child) => child.id).join('\n')
        },
      ),
      this.make<{ sandbox: string }>(
        'ramet_compare', 'Shows which files differ between the main sandbox and a child, as a unified diff.', { sandbox: id }, ['sandbox'],
        async (input, signal) => {
          const diff = await this.sandbox.diff(this.child(input.sandbox), { hunks: true, signal })
          const text = diff.changes.map(({ kind, path, hunks }) => `${kind} ${path}\n${hunks ?? ''}`).join('')
          return this.cut(text) || 'no file differs'
        },
      ),
      this.make<{ sandbox: string }>(
        'ramet_promote', 'Makes the main sandbox go on with the state of a child. The other children stay until they are destroyed.', { sandbox: id }, ['sandbox'],
        async (input, signal) => {
          const child = this.child(input.sandbox)
          await this.sandbox.promote(child, { signal })
          this.children.delete(child.id)
          return `the main sandbox has the state of ${child.id}`
        },
      ),
      this.make<{ sandbox: string }>(
        'ramet_destroy', 'Ends a child that is not needed any more.', { sandbox: id }, ['sandbox'],
        async (input, signal) => {
          const child = this.child(input.sandbox)
          await child.destroy({ signal })
          this.children.delete(child.id)
          return `${child.id} is gone`
        },
      ),
    ]
  }
}
