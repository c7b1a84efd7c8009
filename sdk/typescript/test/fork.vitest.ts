import { expect } from 'vitest'
import { sandboxTest } from '../lib/vitest.js'

let setups = 0
const test = sandboxTest({
  metadata: { suite: 'vitest' },
  setup: async (base) => {
    setups++
    await base.exec('echo seed > /srv/data', { check: true })
    await base.runCode('x = 1')
  },
})

for (const n of [1, 2, 3]) {
  test(`each test begins with the same state: ${n}`, async ({ sandbox }) => {
    expect(await sandbox.files.read('/srv/data')).toBe('seed\n')
    expect((await sandbox.runCode('x')).value).toBe(1)
    await sandbox.files.write('/srv/data', `changed by ${n}`)
    await sandbox.runCode(`x = ${n + 1}`)
    expect(setups).toBe(1)
  })
}

test('a test that needs no sandbox has none', () => {
  expect(setups).toBe(1)
})
