#!/usr/bin/env node
// Runs the program of the platform's package.
import { spawn } from 'node:child_process'
import { createRequire } from 'node:module'
import { constants } from 'node:os'

const name = `@ramet/${process.platform}-${process.arch}`
let program
try {
  program = createRequire(import.meta.url).resolve(`${name}/bin/ramet`)
} catch {
  console.error(`ramet: the package ${name} is not installed: there is none for this platform, or optional packages were left out`)
  process.exit(1)
}
const child = spawn(program, process.argv.slice(2), { stdio: 'inherit' })
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT']) process.on(signal, () => child.kill(signal))
child.on('error', (error) => {
  console.error(`ramet: ${error.message}`)
  process.exit(1)
})
child.on('close', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]))
