import { afterAll, test } from 'vitest'
import type { CreateOptions } from './create.js'
import { Sandbox, type OnClient } from './sandbox.js'

/** What a file of tests begins with. */
export interface SandboxTestOptions extends CreateOptions, OnClient {
  /** Brings the sandbox that all tests fork from into the state that each test begins with. */
  setup?: ((base: Sandbox) => unknown) | undefined
  /** Keep the sandboxes of tests that fail, and print their ids; the default is whether RAMET_KEEP is set. */
  keep?: boolean | undefined
}

/**
 * Returns a `test` of Vitest whose fixture `sandbox` is a fork, for each test, of one sandbox that was set up once for the file.
 * A fork is taken only for tests that use the fixture.
 */
export function sandboxTest(options: SandboxTestOptions = {}) {
  const { setup, keep = Boolean(process.env['RAMET_KEEP']), ...create } = options
  let base: Promise<Sandbox> | undefined
  const warm = async (): Promise<Sandbox> => {
    const sandbox = await Sandbox.create(create)
    try {
      await setup?.(sandbox)
    } catch (error) {
      await sandbox[Symbol.asyncDispose]()
      throw error
    }
    return sandbox
  }
  afterAll(async () => {
    const sandbox = await base?.catch(() => undefined) // the tests have its error
    await sandbox?.[Symbol.asyncDispose]()
  })
  return test.extend<{ sandbox: Sandbox }>({
    sandbox: async ({ task }, use) => {
      base ??= warm()
      const [sandbox] = await (await base).fork()
      const fork = sandbox as Sandbox
      await use(fork)
      if (keep && task.result?.state === 'fail') console.error(`kept ${fork.id} of "${task.name}": ramet shell ${fork.id}`)
      else await fork[Symbol.asyncDispose]()
    },
  })
}
