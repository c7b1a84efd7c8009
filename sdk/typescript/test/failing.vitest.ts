// Run by a test that looks what is kept of it.
import { expect } from 'vitest'
import { sandboxTest } from '../lib/vitest.js'

const test = sandboxTest({ metadata: { suite: 'failing' } })

test('fails', async ({ sandbox }) => {
  expect(sandbox.state).toBe('paused')
})
