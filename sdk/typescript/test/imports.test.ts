import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { packageDir } from './harness.js'

/** Returns the packages that a module of the package loads, with all modules of the package that it loads. */
function packagesOf(module: string): string[] {
  const found = new Set<string>()
  const seen = new Set<string>()
  const visit = (file: string): void => {
    if (seen.has(file)) return
    seen.add(file)
    for (const [, fixed, late] of readFileSync(file, 'utf8').matchAll(/^(?:import|export) (?:[^'"]*? from )?['"]([^'"]+)['"]|\bimport\(['"]([^'"]+)['"]\)/gm)) {
      const name = (fixed ?? late) as string
      if (name.startsWith('.')) visit(join(dirname(file), name))
      else if (!name.startsWith('node:')) found.add(name)
    }
  }
  visit(join(packageDir, 'lib', module))
  return [...found].sort()
}

test('the package loads no other, and an adapter that of its framework', (t) => {
  assert.deepEqual(packagesOf('index.js'), [])
  assert.deepEqual(packagesOf('vitest.js'), ['vitest'])
  if (!existsSync(join(packageDir, 'lib/integrations'))) return t.skip('the frameworks are not installed')
  assert.deepEqual(packagesOf('integrations/deepagents.js'), ['deepagents'])
  assert.deepEqual(packagesOf('integrations/langchain.js'), ['@langchain/core/tools'])
  assert.deepEqual(packagesOf('integrations/ai-sdk.js'), []) // types alone
})
