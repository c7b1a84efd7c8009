import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { Sandbox } from 'ramet'
import { packageDir } from './harness.js'

function vitest(file: string, env: Record<string, string> = {}) {
  const args = ['node_modules/vitest/vitest.mjs', 'run', '--reporter=default', '--reporter=json', '--dir', 'test', '--config', 'tools/vitest.config.mjs', file]
  const done = spawnSync(process.execPath, args, { cwd: packageDir, encoding: 'utf8', env: { ...process.env, ...env, NODE_TEST_CONTEXT: '' } })
  const at = done.stdout.indexOf('{"num')
  assert.ok(at >= 0, done.stdout + done.stderr)
  return { report: JSON.parse(done.stdout.slice(at)) as { numPassedTests: number; numFailedTests: number }, said: done.stderr + done.stdout }
}

test('the helper for Vitest gives each test a fork of one sandbox', async () => {
  const { report, said } = vitest('fork.vitest.ts')
  assert.deepEqual([report.numPassedTests, report.numFailedTests], [4, 0], said)
  assert.deepEqual(await Sandbox.list({ metadata: { suite: 'vitest' } }), [])
})

test('the sandbox of a test that fails is kept on request', async () => {
  assert.equal(vitest('failing.vitest.ts').report.numFailedTests, 1)
  assert.deepEqual(await Sandbox.list({ metadata: { suite: 'failing' } }), [])
  const { report, said } = vitest('failing.vitest.ts', { RAMET_KEEP: '1' })
  assert.equal(report.numFailedTests, 1)
  const kept = await Sandbox.list({ metadata: { suite: 'failing' } })
  assert.equal(kept.length, 1)
  assert.ok(said.includes(`kept ${kept[0]?.id} of "fails"`), said)
  await kept[0]?.destroy()
})
