// The package on Deno and Bun, where they are installed: in PATH, or by npm in .cache/typescript/runtimes.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { delimiter, join } from 'node:path'
import { test } from 'node:test'
import { packageDir, repository } from './harness.js'

const PATH = [process.env['PATH'], join(repository, '.cache/typescript/runtimes/node_modules/.bin')].join(delimiter)
const expected = ['exec HI', 'stream ab', 'stdin AB', 'code 42', 'cell 1', 'files xy', 'fork 2', 'pty true', 'port x', 'abort TimeoutError', 'left', 'gone SandboxGone']

for (const [name, ...args] of [[process.execPath], ['deno', 'run', '-A'], ['bun']] as [string, ...string[]][]) {
  const label = name === process.execPath ? 'node' : name
  test(`the package runs on ${label}`, (t) => {
    if (spawnSync(name, ['--version'], { env: { ...process.env, PATH } }).status !== 0) return t.skip(`${label} is not installed`)
    const done = spawnSync(name, [...args, 'build/runtime.js'], { cwd: packageDir, encoding: 'utf8', timeout: 60_000, env: { ...process.env, PATH } })
    assert.deepEqual(done.stdout.trim().split('\n'), expected, done.stderr)
  })
}
