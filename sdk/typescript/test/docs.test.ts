// Runs each block of TypeScript in the documents, and compares what it prints with the comments behind console.log.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { after, before, test } from 'node:test'
import { packageDir, program, repository } from './harness.js'

const documents = [join(packageDir, 'README.md'), ...['typescript', 'integrations'].map((name) => join(repository, `docs/${name}.md`)), ...pagesOf('recipes'), ...pagesOf('docs/coming-from')]
const dir = mkdtempSync(join(packageDir, 'build/docs-')) // in the package, which finds itself by its name there
after(() => rmSync(dir, { recursive: true }))

/** Returns the pages of a directory of the repository. */
function pagesOf(directory: string): string[] {
  const path = join(repository, directory)
  return existsSync(path) ? readdirSync(path).filter((name) => name.endsWith('.md')).map((name) => join(path, name)) : []
}

interface Snippet {
  name: string
  code: string
  /** Commands that build the images which a recipe says that it needs. */
  builds: string[][]
}

/** Returns the blocks of a document. One that begins with "// continues" follows the block before it in one program. */
function snippetsOf(file: string): Snippet[] {
  const out: Snippet[] = []
  const text = readFileSync(file, 'utf8')
  const builds = basename(dirname(file)) === 'recipes' ? [...text.matchAll(/^\$ ramet (image build .*)$/gm)].map(([, command]) => (command as string).split(' ')) : []
  for (const block of text.matchAll(/^```ts\n([^]*?)^```$/gm)) {
    const code = block[1] as string
    const line = text.slice(0, block.index).split('\n').length
    const previous = out.at(-1)
    if (code.startsWith('// continues') && previous) previous.code += code
    else out.push({ name: `${basename(file, '.md')}-${line}`, code, builds })
  }
  return out
}

/** Examples of adapters need their frameworks. */
const adapter = /from 'ramet\/(?!vitest)/
const all = documents.flatMap(snippetsOf)
const snippets = existsSync(join(packageDir, 'lib/integrations')) ? all : all.filter(({ code }) => !adapter.test(code))

before(() => {
  // All are compiled in one run, as a user with strict settings does.
  for (const { name, code } of snippets) writeFileSync(join(dir, `${name}${isTest(code) ? '.vitest.ts' : '.mts'}`), code)
  const config = {
    extends: join(packageDir, 'tsconfig.json'),
    compilerOptions: { rootDir: '.', outDir: 'out', declaration: false, noUnusedLocals: false, types: ['node'], typeRoots: [join(packageDir, 'node_modules/@types')] },
    include: ['*.mts', '*.vitest.ts'],
  }
  writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify(config))
  const compiled = spawnSync(process.execPath, [join(packageDir, 'node_modules/typescript/bin/tsc'), '-p', dir], { encoding: 'utf8' })
  assert.equal(compiled.status, 0, compiled.stdout)
})

/** Reports whether a block is one of tests, which Vitest runs. */
function isTest(code: string): boolean {
  return code.includes("from 'vitest'")
}

/** Returns what the comments say that a program prints. A part in … stands for anything. */
function expected(code: string): RegExp[] {
  return [...code.matchAll(/^\s*console\.log\(.*\) \/\/ (.*)$/gm)].map(([, text]) => {
    const parts = (text as string).split('…').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    return new RegExp(`^${parts.join('.*')}$`)
  })
}

test('the documents have examples', () => {
  assert.ok(snippets.length >= 10, `${snippets.length} blocks`)
})

/** Builds an image of a recipe unless it is there. Browsers and servers are large: it returns why their tests are skipped. */
function provide(build: string[]): string | undefined {
  const name = build[2] as string
  if (spawnSync(program, ['image', 'inspect', name]).status === 0) return undefined
  if (process.env['RAMET_TEST_BUILD'] !== 'all') return `the image ${name} is not at hand: RAMET_TEST_BUILD=all has it built`
  const built = spawnSync(program, build, { encoding: 'utf8' })
  assert.equal(built.status, 0, built.stderr)
  return undefined
}

for (const { name, code, builds } of snippets) {
  test(`the example ${name} does what it says`, async (t) => {
    for (const build of builds) {
      const why = provide(build)
      if (why !== undefined) return t.skip(why)
    }
    const work = join(dir, `${name}-work`)
    mkdirSync(work)
    const out = await new Promise<{ status: number | null; stdout: string; stderr: string }>((resolve) => {
      const vitest = ['node_modules/vitest/vitest.mjs', 'run', '--dir', dir, '--config', 'tools/vitest.config.mjs', `${name}.vitest.ts`]
      const child = isTest(code)
        ? spawn(process.execPath, vitest, { cwd: packageDir, timeout: 120_000 })
        : spawn(process.execPath, [join(dir, 'out', `${name}.mjs`)], { cwd: work, timeout: 120_000 })
      let [stdout, stderr] = ['', '']
      child.stdout.on('data', (part: Buffer) => (stdout += part.toString()))
      child.stderr.on('data', (part: Buffer) => (stderr += part.toString()))
      child.once('close', (status) => resolve({ status, stdout, stderr }))
    })
    assert.equal(out.status, 0, out.stderr)
    const lines = out.stdout.split('\n')
    let at = 0
    for (const want of expected(code)) {
      while (at < lines.length && !want.test(lines[at] as string)) at++
      assert.ok(at < lines.length, `${want} is not printed, or not in this order:\n${out.stdout}`)
      at++
    }
  })
}
