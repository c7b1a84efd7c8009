// Runs all tests with one daemon, and looks afterwards whether they left sandboxes.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { packageDir, program, repository, World } from './harness.js'

const cache = join(repository, '.cache/typescript')

/** Returns a store with the image python, which is built once; or says why there is none. */
async function imageStore(): Promise<string> {
  const home = join(cache, 'images')
  const complete = join(home, 'complete')
  if (!existsSync(complete)) {
    mkdirSync(home, { recursive: true })
    const world = new World(undefined)
    world.env['XDG_DATA_HOME'] = home
    try {
      const built = spawnSync(program, ['image', 'build', 'python', '--include', 'python3,python3-numpy'], { env: world.env, encoding: 'utf8' })
      if (built.status !== 0) throw new Error(`the image python cannot be built: ${built.stderr.trim()}`)
      writeFileSync(complete, '')
    } finally {
      await world.end()
    }
  }
  return join(home, 'ramet/images')
}

const images = await imageStore().catch((error: unknown) => {
  console.log(`skip: sdk/typescript: ${(error as Error).message}`)
  process.exit(0)
})
const only = process.argv.slice(2)
const files = readdirSync(join(packageDir, 'build'), { recursive: true, encoding: 'utf8' })
  .filter((name) => /^(integrations\/)?[^/]+\.test\.js$/.test(name) && (only.length === 0 || only.some((part) => name.includes(part))))
  .map((name) => join(packageDir, 'build', name))
const world = new World(images)
const listening = await world.listening()
await world.serve(...(listening?.args ?? []))
const remote = listening && { RAMET_TEST_HOST: listening.host, RAMET_TEST_CA: listening.ca, RAMET_TEST_TOKEN: world.token() }
const status = await new Promise<number | null>((resolve) => {
  const args = ['--test', '--test-concurrency=2', '--test-timeout=120000', `--test-reporter=${process.env['TEST_REPORTER'] ?? 'spec'}`, ...files]
  const env = { ...world.env, ...remote, RAMET_TEST_IMAGES: images, RAMET_TEST_BUILD: process.env['RAMET_TEST_BUILD'] }
  const tests = spawn(process.execPath, args, { env, stdio: 'inherit', cwd: packageDir })
  tests.once('close', resolve)
})
const left = await world.end()
if (left.length > 0) console.error(`the tests left sandboxes: ${left.join(' ')}`)
process.exit(status === 0 && left.length === 0 ? 0 : 1)
