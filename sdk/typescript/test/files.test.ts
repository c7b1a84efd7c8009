import assert from 'node:assert/strict'
import { lstat, mkdir, mkdtemp, readFile, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { request } from 'node:http'
import { after, before, test } from 'node:test'
import { Conflict, InvalidRequest, NotFound, RametError, Sandbox, Timeout, type FileEvents } from 'ramet'
import { packDirectory, unpack } from '../lib/tar.js'

let base: Sandbox
let local: string
before(async () => {
  base = await Sandbox.create()
  local = await mkdtemp(join(tmpdir(), 'ramet-ts-files-'))
})
after(async () => {
  await base.destroy()
  await rm(local, { recursive: true })
})

test('files are written, read, described, moved and removed', async () => {
  const written = await base.files.write('/srv/a/b/text', 'größe\n', { mode: 0o640 })
  assert.deepEqual([written.size, written.mode, written.created], [8, '0640', true])
  assert.equal(await base.files.read('/srv/a/b/text'), 'größe\n')
  await base.files.write('/srv/a/b/text', 'more', { append: true })
  assert.equal(await base.files.read('/srv/a/b/text'), 'größe\nmore')
  await base.files.write('/srv/bytes', new Uint8Array([0, 1, 255]))
  assert.deepEqual([...(await base.files.readBytes('/srv/bytes'))], [0, 1, 255])
  await base.files.write('/srv/blob', new Blob(['blo', 'b']))
  assert.equal(await base.files.read('/srv/blob'), 'blob')
  assert.equal(await base.files.exists('/srv/blob'), true)
  await base.files.move('/srv/blob', '/srv/moved')
  assert.equal(await base.files.exists('/srv/blob'), false)
  assert.equal((await base.files.chmod('/srv/moved', 0o600)).mode, '0600')
  await assert.rejects(base.files.read('/srv/moved', { user: 'nobody' }), (error: RametError) => error.code === 'permission_denied')
  await base.files.remove('/srv/moved')
  await assert.rejects(base.files.read('/srv/moved'), NotFound)
  await assert.rejects(base.files.remove('/srv/a'), RametError)
  await base.files.remove('/srv/a', { recursive: true })
  await base.files.mkdir('/srv/x/y')
  assert.equal((await base.files.stat('/srv/x/y')).type, 'dir')
  await assert.rejects(base.files.read('relative'), InvalidRequest)
})

test('conditions prevent overwriting the changes of another', async () => {
  const first = await base.files.write('/srv/condition', '1', { ifNoneMatch: '*' })
  await assert.rejects(base.files.write('/srv/condition', '2', { ifNoneMatch: '*' }), (error: Conflict) => error instanceof Conflict && error.code === 'precondition_failed')
  await base.files.write('/srv/condition', '3', { ifMatch: first.etag ?? '' })
  await assert.rejects(base.files.write('/srv/condition', '4', { ifMatch: first.etag ?? '' }), Conflict)
  assert.equal(await base.files.read('/srv/condition'), '3')
})

test('directories are listed, walked and searched', async () => {
  for (const name of ['d/1.py', 'd/2.txt', 'd/e/3.py']) await base.files.write(`/srv/list/${name}`, `needle in ${name}\n`)
  assert.deepEqual((await base.files.list('/srv/list/d')).map((file) => file.path), ['/srv/list/d/1.py', '/srv/list/d/2.txt', '/srv/list/d/e'])
  const all = []
  for await (const file of base.files.walk('/srv/list', { glob: '*.py' })) all.push(file.path)
  assert.deepEqual(all, ['/srv/list/d/1.py', '/srv/list/d/e/3.py'])
  const found = await base.files.search('/srv/list', { content: 'NEEDLE', ignoreCase: true, name: '*.txt' })
  assert.deepEqual(found.matches.map((match) => [match.file.path, match.line, match.text]), [['/srv/list/d/2.txt', 1, 'needle in d/2.txt']])
})

test('changes are watched', async () => {
  const seen: FileEvents['changes'] = []
  for await (const events of base.files.watchEvents('/srv', { recursive: true, debounce: 10 })) {
    if (events.ready) await base.files.write('/srv/watched', 'x')
    seen.push(...events.changes)
    if (seen.some((event) => event.path === '/srv/watched')) break
  }
  assert.equal(seen.find((event) => event.path === '/srv/watched')?.kind, 'created')
  const abort = new AbortController()
  const watching = (async () => {
    for await (const _ of base.files.watch('/srv', { signal: abort.signal }));
  })()
  abort.abort()
  await assert.rejects(watching, { name: 'AbortError' })
})

test('directories go in and out with modes and links', async () => {
  const long = 'n'.repeat(90)
  await mkdir(join(local, 'in', long, long), { recursive: true })
  await writeFile(join(local, 'in/run'), '#!/bin/sh\n', { mode: 0o755 })
  await writeFile(join(local, 'in', long, long, 'deep'), 'deep')
  await writeFile(join(local, 'in/large'), Buffer.alloc(3_000_001, 'x'))
  await symlink('run', join(local, 'in/link'))
  await base.files.upload(join(local, 'in'), '/srv/tree')
  assert.equal((await base.exec('cd /srv/tree && readlink link && stat -c %a run && cat */*/deep && wc -c < large')).stdout, 'run\n755\ndeep3000001\n')
  await base.files.download('/srv/tree', join(local, 'out'))
  assert.equal(await readFile(join(local, 'out', long, long, 'deep'), 'utf8'), 'deep')
  assert.equal((await stat(join(local, 'out/run'))).mode & 0o777, 0o755)
  assert.equal(await readlink(join(local, 'out/link')), 'run')
  assert.equal((await stat(join(local, 'out/large'))).size, 3_000_001)
  await base.files.upload(join(local, 'in/run'), '/srv/single')
  await base.files.download('/srv/single', local)
  assert.equal(await readFile(join(local, 'single'), 'utf8'), '#!/bin/sh\n')
  assert.equal((await stat(join(local, 'single'))).mode & 0o777, 0o755)
})

test('no archive writes outside of its directory', async () => {
  const entry = (name: string, type: string, target = '', text = ''): Buffer => {
    const head = Buffer.alloc(512)
    head.write(name)
    head.write('0000644\0', 100)
    head.write(`${text.length.toString(8).padStart(11, '0')}\0`, 124)
    head.write(' '.repeat(8), 148)
    head.write(type, 156)
    head.write(target, 157)
    head.write('ustar\u000000', 257)
    head.write(`${head.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, '0')}\0 `, 148)
    return Buffer.concat([head, Buffer.from(text.padEnd(Math.ceil(text.length / 512) * 512, '\0'))])
  }
  const hostile: Record<string, Buffer[]> = {
    up: [entry('r/../../evil', '0', '', 'x')],
    absolute: [entry('/evil', '0', '', 'x')],
    through: [entry('r/link', '2', local), entry('r/link/evil', '0', '', 'x')],
    hard: [entry('r/hard', '1', 'r/../../single')],
  }
  for (const [name, parts] of Object.entries(hostile)) {
    const tar = (async function* () { yield Buffer.concat([...parts, Buffer.alloc(1024)]) })()
    await assert.rejects(unpack(tar, join(local, 'hostile', name), 'r'), (error: RametError) => error.code === 'hostile_archive', name)
  }
  await assert.rejects(lstat(join(local, 'evil')))
  const cut = (async function* () { yield entry('r/file', '0', '', 'x'.repeat(600)).subarray(0, 700) })()
  await assert.rejects(unpack(cut, join(local, 'cut'), 'r'), /ends inside/)
})

test('a tar that is packed is one that is unpacked', async () => {
  await mkdir(join(local, 'plain/sub'), { recursive: true })
  await writeFile(join(local, 'plain/sub/file'), 'contents')
  await unpack(packDirectory(join(local, 'plain')), join(local, 'again'), '')
  assert.equal(await readFile(join(local, 'again/sub/file'), 'utf8'), 'contents')
})

test('large files are streamed up and down', async () => {
  const size = process.env['RAMET_TEST_BUILD'] === 'all' ? 2 ** 30 : 64 << 20
  async function* ones() {
    const piece = Buffer.alloc(1 << 20, 1)
    for (let sent = 0; sent < size; sent += piece.length) yield piece
  }
  const before = process.memoryUsage().arrayBuffers
  let most = 0
  const written = await base.files.write('/srv/large', ones())
  assert.equal(written.size, size)
  let seen = 0
  for await (const part of base.files.readStream('/srv/large')) {
    seen += part.length
    most = Math.max(most, process.memoryUsage().arrayBuffers - before)
  }
  assert.equal(seen, size)
  assert.ok(most < 40 << 20, `${most >> 20} MiB were kept`)
  await base.files.remove('/srv/large')
})

test('ports are waited for, listed, forwarded and connected to', async () => {
  await base.files.write('/srv/site/index.html', 'hello')
  const port = base.port(8000)
  await assert.rejects(port.wait(50), Timeout)
  const server = await base.exec('cd /srv/site && exec python3 -m http.server 8000', { background: true })
  assert.equal((await port.wait()).port, 8000)
  assert.ok((await base.ports()).some((one) => one.port === 8000 && one.protocol === 'tcp'))
  const body = await (await fetch(await port.url())).text()
  assert.equal(body, 'hello')
  const socket = await port.connect()
  socket.end('GET /index.html HTTP/1.0\r\n\r\n')
  let answer = ''
  for await (const part of socket) answer += String(part)
  assert.match(answer, /^HTTP\/1\.0 200 [^]*hello$/)
  await port.close()
  await using forward = await port.forward()
  const [child] = await base.fork()
  await using forked = await (child as Sandbox).port(8000).forward()
  for (const { port: at, host } of [forward, forked]) {
    const text = await new Promise<string>((resolve, reject) => {
      request({ host, port: at, path: '/' }, (response) => {
        let got = ''
        response.on('data', (part) => (got += part)).on('end', () => resolve(got))
      }).on('error', reject).end()
    })
    assert.equal(text, 'hello')
  }
  await (child as Sandbox).destroy()
  await server.kill()
  assert.throws(() => base.port(0), InvalidRequest)
})
