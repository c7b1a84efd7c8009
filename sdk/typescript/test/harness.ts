// A daemon of its own for tests, and what tests share.
import assert from 'node:assert/strict'
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { cpSync, existsSync, linkSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { extname, join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

/** The top of the package, seen from the built tests. */
export const packageDir = resolve(import.meta.dirname ?? new URL('.', import.meta.url).pathname, '..')
export const repository = resolve(packageDir, '../..')
export const program = process.env['RAMET_BIN'] ?? join(repository, 'bin/ramet')

/** Calls holds until it is true, or fails after a minute. */
export async function eventually(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  for (let left = 3000; ; left--) {
    if (await holds()) return
    assert.ok(left > 0, `not within a minute: ${what}`)
    await delay(20)
  }
}

export async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as AddressInfo
  await new Promise<void>((done) => server.close(() => done()))
  return port
}

/** Directories of a daemon, in which it is started by hand or by a client. */
export class World implements AsyncDisposable {
  readonly dir: string
  readonly env: NodeJS.ProcessEnv
  private child: ChildProcess | undefined

  constructor(images: string | undefined) {
    this.dir = mkdtempSync(join(tmpdir(), 'ramet-ts-')) // short, as sockets lie below it
    for (const name of ['run', 'data', 'config', 'files']) mkdirSync(join(this.dir, name), { mode: 0o700 })
    const clean = Object.entries(process.env).filter(([name]) => !name.startsWith('RAMET_') && !name.startsWith('OTEL_'))
    this.env = {
      ...Object.fromEntries(clean),
      XDG_RUNTIME_DIR: join(this.dir, 'run'),
      XDG_DATA_HOME: join(this.dir, 'data'),
      XDG_CONFIG_HOME: join(this.dir, 'config'),
      RAMET_BIN: program,
      RAMET_POOL: '2',
    }
    if (images !== undefined) copyImages(images, join(this.dir, 'data/ramet/images'))
  }

  get socket(): string {
    return join(this.dir, 'run/ramet/ramet.sock')
  }

  /** Makes a certificate for 127.0.0.1, and returns the arguments with which a daemon listens there; or undefined without openssl. */
  async listening(): Promise<{ args: string[]; host: string; ca: string } | undefined> {
    const [cert, key] = [join(this.dir, 'cert.pem'), join(this.dir, 'key.pem')]
    const made = spawnSync('openssl', [
      'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', '/CN=localhost',
      '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', key, '-out', cert,
    ])
    if (made.status !== 0) return undefined
    const at = `127.0.0.1:${await freePort()}`
    return { args: ['--listen', at, '--tls-cert', cert, '--tls-key', key], host: `https://${at}`, ca: cert }
  }

  /** Makes a token with all rights. */
  token(): string {
    return (JSON.parse(this.ramet('token', 'create', '--scope', 'admin', '--json')) as { secret: string }).secret
  }

  /** Runs a command, which must succeed. */
  ramet(...args: string[]): string {
    const done = spawnSync(program, args, { env: this.env, encoding: 'utf8' })
    assert.equal(done.status, 0, `ramet ${args.join(' ')}: ${done.stderr}${done.error ?? ''}`)
    return done.stdout
  }

  /** Starts a daemon in the foreground, and waits until it answers. */
  async serve(...args: string[]): Promise<ChildProcess> {
    const child = spawn(program, ['serve', ...args], { env: this.env, stdio: ['ignore', 'ignore', 'pipe'] })
    let said = ''
    child.stderr?.on('data', (text: Buffer) => {
      said += text.toString()
      if (text.includes('sentry crashed')) console.error(text.toString())
    })
    this.child = child
    await eventually('the daemon listens', () => {
      assert.equal(child.exitCode, null, `the daemon ended: ${said}`)
      return existsSync(this.socket)
    })
    this.ramet('api', '/healthz')
    return child
  }

  /** Kills the daemon. Its sandboxes go on. */
  kill(): void {
    this.child?.kill('SIGKILL')
  }

  /** Destroys all sandboxes, ends the daemon if there is one, and returns the ids of the sandboxes that were left. */
  async end(): Promise<string[]> {
    let left: string[] = []
    if (existsSync(this.socket)) {
      const pid = (JSON.parse(this.ramet('api', '/healthz')) as { pid: number }).pid
      left = this.ramet('ls', '-q', '-A').split('\n').filter(Boolean)
      if (left.length > 0) this.ramet('rm', ...left)
      process.kill(pid, 'SIGTERM')
      await eventually('the daemon ends', () => this.child?.exitCode === 0 || !isAlive(pid))
    }
    rmSync(this.dir, { recursive: true, force: true })
    return left
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end()
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

/** Copies an image store. The images themselves, which nobody changes, are links. */
function copyImages(from: string, to: string): void {
  mkdirSync(to, { recursive: true, mode: 0o700 })
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)]
    if (entry.isDirectory()) copyImages(source, target)
    else if (extname(entry.name) !== '.erofs' || !tryLink(source, target)) cpSync(source, target)
  }
}

function tryLink(source: string, target: string): boolean {
  try {
    linkSync(source, target)
    return true
  } catch {
    return false // another file system
  }
}
