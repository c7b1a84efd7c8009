// Uses each part of the package, for the test of runtimes.
import { Sandbox } from '../lib/index.js'

const sandbox = await Sandbox.create('python')
try {
  console.log('exec', (await sandbox.exec('tr a-z A-Z', { stdin: 'hi' })).stdout)
  let text = ''
  for await (const piece of sandbox.exec('printf a; sleep 0.05; printf b', { stream: true })) text += piece.text
  console.log('stream', text)
  console.log('stdin', (await sandbox.exec('cat', { stdin: new Uint8Array([65, 66]) })).stdout)
  console.log('code', (await sandbox.runCode('6 * 7')).value)
  const shown: string[] = []
  await sandbox.runCode('print(1)', { onStdout: (piece) => void shown.push(piece) })
  console.log('cell', shown.join('').trim())
  await sandbox.files.write('/srv/a', 'x')
  await sandbox.files.write('/srv/b', (async function* () { yield 'y' })())
  console.log('files', (await sandbox.files.read('/srv/a')) + (await sandbox.files.read('/srv/b')))
  const children = await sandbox.fork(2)
  console.log('fork', new Set(await Promise.all(children.map(async (child) => (await child.exec('cat /run/ramet/id')).stdout))).size)
  await children.destroy()
  const pty = await sandbox.pty({ command: ['sh'] })
  await pty.write('echo $((6 * 7)); exit\n')
  let screen = ''
  for await (const piece of pty) screen += piece.text
  console.log('pty', screen.includes('42\r'))
  await sandbox.exec('cd /srv && exec python3 -m http.server 8000', { background: true })
  const port = sandbox.port(8000)
  await port.wait()
  console.log('port', await (await fetch(`${await port.url()}/a`)).text())
  await port.close()
  await sandbox.exec('sleep 100', { signal: AbortSignal.timeout(50) }).catch((error: Error) => console.log('abort', error.name))
  for await (const _ of sandbox.exec('yes', { stream: true })) break
  console.log('left')
} finally {
  await sandbox.destroy()
}
await sandbox.exec('true').catch((error: Error) => console.log('gone', error.name))
