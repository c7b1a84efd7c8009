import { constants, type Stats } from 'node:fs'
import { chmod, link, lstat, mkdir, open, readdir, readlink, rm, symlink } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { RametError } from './errors.js'
import { BrokenOff } from './wire.js'

const block = 512

/** Yields a tar of what is in a directory, without the directory itself. Names may have any bytes. */
export async function* packDirectory(dir: string): AsyncGenerator<Uint8Array, void, undefined> {
  yield* packBelow(Buffer.from(dir), Buffer.alloc(0))
  yield Buffer.alloc(2 * block)
}

async function* packBelow(dir: Buffer, prefix: Buffer): AsyncGenerator<Uint8Array, void, undefined> {
  const names = await readdir(dir, { encoding: 'buffer' })
  for (const name of names.sort(Buffer.compare)) {
    const path = Buffer.concat([dir, Buffer.from('/'), name])
    const inside = Buffer.concat([prefix, name])
    const info = await lstat(path)
    if (info.isDirectory()) {
      const below = Buffer.concat([inside, Buffer.from('/')])
      yield header('5', below, info, 0)
      yield* packBelow(path, below)
    } else if (info.isSymbolicLink()) {
      yield header('2', inside, info, 0, await readlink(path, { encoding: 'buffer' }))
    } else if (info.isFile()) {
      yield* packFile(path, inside)
    } // Sockets, pipes and devices are left out.
  }
}

async function* packFile(path: Buffer, name: Buffer): AsyncGenerator<Uint8Array, void, undefined> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW)
  try {
    const info = await file.stat()
    yield header('0', name, info, info.size)
    let left = info.size
    while (left > 0) {
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(Math.min(left, 256 << 10)))
      if (bytesRead === 0) throw new Error(`${path.toString()} became shorter while it was read`)
      left -= bytesRead
      yield buffer.subarray(0, bytesRead)
    }
    const over = info.size % block
    if (over > 0) yield Buffer.alloc(block - over)
  } finally {
    await file.close()
  }
}

/** Returns the header of an entry, with one of pax (POSIX.1-2001) before it if a value has no room. */
function header(type: string, name: Buffer, info: Stats, size: number, target = Buffer.alloc(0)): Buffer {
  const records: Buffer[] = []
  if (name.length > 100) records.push(record('path', name))
  if (target.length > 100) records.push(record('linkpath', target))
  if (size >= 8 ** 11) records.push(record('size', Buffer.from(String(size))))
  const own = plainHeader(type, name, info.mode & 0o7777, Math.floor(info.mtimeMs / 1000), size >= 8 ** 11 ? 0 : size, target)
  if (records.length === 0) return own
  const payload = Buffer.concat(records)
  const padding = Buffer.alloc((block - (payload.length % block)) % block)
  return Buffer.concat([plainHeader('x', Buffer.from('pax'), 0o644, 0, payload.length, Buffer.alloc(0)), payload, padding, own])
}

function plainHeader(type: string, name: Buffer, mode: number, mtime: number, size: number, target: Buffer): Buffer {
  const out = Buffer.alloc(block)
  const number = (value: number, at: number, length: number): void => {
    out.write(Math.max(0, value).toString(8).padStart(length - 1, '0'), at)
  }
  name.copy(out, 0, 0, Math.min(name.length, 100))
  number(mode, 100, 8)
  number(0, 108, 8)
  number(0, 116, 8)
  number(size, 124, 12)
  number(mtime, 136, 12)
  out.write(' '.repeat(8), 148)
  out.write(type, 156)
  target.copy(out, 157, 0, Math.min(target.length, 100))
  out.write('ustar\u000000', 257)
  let sum = 0
  for (const byte of out) sum += byte
  out.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return out
}

/** Returns a record of pax, which begins with its own length. */
function record(key: string, value: Buffer): Buffer {
  const rest = key.length + value.length + 3 // a space, = and a line break
  let length = rest + String(rest).length
  length = rest + String(length).length
  return Buffer.concat([Buffer.from(`${length} ${key}=`), value, Buffer.from('\n')])
}

/** Reads a stream of bytes in pieces of a wanted length. */
class Source {
  private buffer: Buffer = Buffer.alloc(0)
  private readonly input: AsyncIterator<Uint8Array>

  constructor(input: AsyncIterable<Uint8Array>) {
    this.input = input[Symbol.asyncIterator]()
  }

  /** Returns up to so many bytes, and none at the end. */
  async some(most: number): Promise<Buffer> {
    while (this.buffer.length === 0) {
      const next = await this.input.next()
      if (next.done) return this.buffer
      this.buffer = Buffer.from(next.value.buffer, next.value.byteOffset, next.value.length)
    }
    const part = this.buffer.subarray(0, most)
    this.buffer = this.buffer.subarray(part.length)
    return part
  }

  /** Returns exactly so many bytes, or undefined at the end of the stream. */
  async exactly(length: number): Promise<Buffer | undefined> {
    const parts: Buffer[] = []
    let left = length
    while (left > 0) {
      const part = await this.some(left)
      if (part.length === 0) {
        if (left === length) return undefined
        throw new BrokenOff('the archive ends inside an entry')
      }
      parts.push(part)
      left -= part.length
    }
    return Buffer.concat(parts)
  }

  async end(): Promise<void> {
    await this.input.return?.()
  }
}

interface Entry {
  type: string
  name: string
  target: string
  mode: number
  size: number
}

// Long names and records of pax are read whole.
const maxMeta = 1 << 20

/**
 * Unpacks a tar below a directory, without the first component of its names, which is `root`. No entry is written outside of the
 * directory, nor through a symbolic link. Owners and set-id bits are dropped; pipes and devices are left out.
 */
export async function unpack(tar: AsyncIterable<Uint8Array>, dir: string, root: string): Promise<void> {
  const source = new Source(tar)
  const modes: [string, number][] = []
  try {
    await mkdir(dir, { recursive: true })
    for (let entry = await nextEntry(source); entry; entry = await nextEntry(source)) {
      const path = below(entry.name, root)
      if (path === '') {
        await source.exactly(padded(entry.size))
        continue
      }
      const target = join(dir, path)
      await checkParents(dir, path)
      switch (entry.type) {
        case '5':
          await makeDirectory(target)
          modes.push([target, entry.mode & 0o777])
          break
        case '0':
          await writeFile(target, source, entry)
          continue
        case '2':
          await replace(target, () => symlink(entry.target, target))
          break
        case '1': {
          const from = below(entry.target, root)
          await checkParents(dir, from)
          await replace(target, () => link(join(dir, from), target))
          break
        }
      }
      await source.exactly(padded(entry.size))
    }
    // Directories get their modes at last: one may forbid to write in it.
    for (const [path, mode] of modes.reverse()) await chmod(path, mode)
  } finally {
    await source.end()
  }
}

function padded(size: number): number {
  return Math.ceil(size / block) * block
}

async function nextEntry(source: Source): Promise<Entry | undefined> {
  let records: Record<string, string> = {}
  for (;;) {
    const head = await source.exactly(block)
    if (head === undefined || head.every((byte) => byte === 0)) return undefined
    let sum = 0
    for (const [at, byte] of head.entries()) sum += at >= 148 && at < 156 ? 32 : byte
    if (sum !== number(head, 148, 8)) throw new BrokenOff('an entry of the archive has a wrong checksum')
    const type = String.fromCharCode(head[156] || 0x30)
    const size = records['size'] === undefined ? number(head, 124, 12) : Number(records['size'])
    if (type === 'x' || type === 'g' || type === 'L' || type === 'K') {
      if (size > maxMeta) throw new BrokenOff('a name in the archive is too long')
      const payload = (await source.exactly(padded(size)))?.subarray(0, size) ?? Buffer.alloc(0)
      if (type === 'x') records = { ...records, ...recordsOf(payload) }
      else if (type === 'L') records['path'] = text(payload, 0, size)
      else if (type === 'K') records['linkpath'] = text(payload, 0, size)
      continue
    }
    const prefix = head.toString('latin1', 257, 263) === 'ustar\0' ? text(head, 345, 155) : ''
    const name = records['path'] ?? (prefix ? `${prefix}/` : '') + text(head, 0, 100)
    return { type: type === '7' ? '0' : type, name, target: records['linkpath'] ?? text(head, 157, 100), mode: number(head, 100, 8), size }
  }
}

function text(from: Buffer, at: number, length: number): string {
  const part = from.subarray(at, at + length)
  const end = part.indexOf(0)
  return part.subarray(0, end < 0 ? part.length : end).toString()
}

/** Reads a number: octal digits, or big-endian bytes after a byte 0x80. */
function number(from: Buffer, at: number, length: number): number {
  if ((from[at] as number) & 0x80) {
    let value = 0
    for (let i = at + 1; i < at + length; i++) value = value * 256 + (from[i] as number)
    if (!Number.isSafeInteger(value)) throw new BrokenOff('a number in the archive is too large')
    return value
  }
  const value = Number.parseInt(text(from, at, length).trim() || '0', 8)
  if (Number.isNaN(value)) throw new BrokenOff('a number in the archive is invalid')
  return value
}

function recordsOf(payload: Buffer): Record<string, string> {
  const out: Record<string, string> = {}
  for (let at = 0; at < payload.length; ) {
    const space = payload.indexOf(0x20, at)
    const length = Number(payload.toString('latin1', at, space))
    if (space < 0 || !Number.isInteger(length) || length < 5 || at + length > payload.length) throw new BrokenOff('a record in the archive is invalid')
    const line = payload.subarray(space + 1, at + length - 1)
    const equals = line.indexOf(0x3d)
    out[line.subarray(0, equals).toString()] = line.subarray(equals + 1).toString()
    at += length
  }
  return out
}

function refused(name: string, why: string): RametError {
  return new RametError(`the entry ${JSON.stringify(name)} of the archive ${why}`, { code: 'hostile_archive' })
}

/** Returns a name without its first component, and refuses one that leads out of the directory. */
function below(name: string, root: string): string {
  const parts = name.split('/').filter((part) => part !== '' && part !== '.')
  if (parts.includes('..') || name.includes('\0')) throw refused(name, 'leads out of the directory')
  if (root !== '' && parts[0] !== root) throw refused(name, `is not below ${root}`)
  return parts.slice(root === '' ? 0 : 1).join('/')
}

/** Makes missing directories above a path, and refuses a path through a symbolic link. */
async function checkParents(dir: string, path: string): Promise<void> {
  let at = resolve(dir)
  for (const part of dirname(path).split('/')) {
    if (part === '.') continue
    at = join(at, part)
    const info = await lstat(at).catch(() => undefined)
    if (info === undefined) await mkdir(at)
    else if (!info.isDirectory()) throw refused(path, `would be written through ${at}, which is no directory`)
  }
}

async function makeDirectory(path: string): Promise<void> {
  const info = await lstat(path).catch(() => undefined)
  if (info?.isDirectory()) return
  if (info) await rm(path)
  await mkdir(path)
}

async function replace(path: string, make: () => Promise<void>): Promise<void> {
  const info = await lstat(path).catch(() => undefined)
  if (info && !info.isDirectory()) await rm(path)
  await make()
}

async function writeFile(path: string, source: Source, entry: Entry): Promise<void> {
  const info = await lstat(path).catch(() => undefined)
  if (info && !info.isDirectory()) await rm(path)
  const file = await open(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, entry.mode & 0o777)
  try {
    for (let left = entry.size; left > 0; ) {
      const part = await source.some(left)
      if (part.length === 0) throw new BrokenOff('the archive ends inside a file')
      await file.writeFile(part)
      left -= part.length
    }
    await file.chmod(entry.mode & 0o777)
  } finally {
    await file.close()
  }
  await source.exactly(padded(entry.size) - entry.size)
}
