// Makes calls of one kind and prints their mean in seconds: calls.mjs exec|run_code COUNT.
import { Sandbox } from '../typescript/lib/index.js'

const [kind, count] = [process.argv[2], Number(process.argv[3])]
const sbx = await Sandbox.create({ image: 'python' })
const one = kind === 'exec' ? () => sbx.exec(['true']) : () => sbx.runCode('1')
await one()
const began = process.hrtime.bigint()
for (let i = 0; i < count; i++) await one()
console.log(Number(process.hrtime.bigint() - began) / 1e9 / count)
await sbx.destroy()
