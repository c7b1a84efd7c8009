import { spawn } from 'node:child_process'
import { accessSync, constants, readFileSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { delimiter, isAbsolute, join } from 'node:path'
import { InvalidRequest, Unavailable } from './errors.js'

/** Where a daemon is, and as whom to talk to it. */
export interface Address {
  /** Path of the daemon's socket; absent if it is reached by a URL. */
  socket?: string
  /** http or https URL without a slash at its end; absent for a socket. */
  url?: URL
  token?: string
  ca?: string
  /** It is the socket of the user's own daemon, which may be started. */
  own: boolean
}

/** How to connect. What is absent is taken from the environment: RAMET_HOST, RAMET_TOKEN, RAMET_CA. */
export interface ConnectOptions {
  /** `https://HOST:PORT` or `unix:PATH`; the user's own daemon if absent. */
  host?: string | undefined
  /** Secret of a token. The owner of a daemon needs none at its socket. */
  token?: string | undefined
  /** Certificate authorities in PEM form that may sign the certificate of the daemon; else those of Node. */
  ca?: string | undefined
  /** Headers for each request, such as `traceparent`. */
  headers?: (() => Record<string, string>) | undefined
  /** How often a daemon that has not answered yet is asked whether it lives, and how long it may take; in milliseconds. */
  probe?: { interval: number; timeout: number } | undefined
}

/** Finds a daemon by options and environment. */
export function resolveAddress(options: ConnectOptions, env: NodeJS.ProcessEnv = process.env): Address {
  const host = options.host ?? (env['RAMET_HOST'] || undefined)
  const tokenFile = env['RAMET_TOKEN_FILE']
  const token = options.token ?? (env['RAMET_TOKEN'] || (tokenFile ? readConfigured('RAMET_TOKEN_FILE', tokenFile).trim() : undefined))
  const ca = options.ca ?? (env['RAMET_CA'] ? readConfigured('RAMET_CA', env['RAMET_CA']) : undefined)
  const credentials = { ...(token ? { token } : {}), ...(ca ? { ca } : {}) }
  if (host === undefined) return { socket: join(runtimeDir(env), 'ramet.sock'), own: true, ...credentials }
  if (host.startsWith('unix:')) {
    const socket = host.slice('unix:'.length)
    if (!isAbsolute(socket)) throw invalid('host', `${JSON.stringify(host)} has no absolute path: say unix:/PATH`)
    return { socket, own: false, ...credentials }
  }
  let url: URL
  try {
    url = new URL(host)
  } catch {
    throw notAnAddress(host)
  }
  if (!/^https?:$/.test(url.protocol) || !url.host || url.username || url.password) throw notAnAddress(host)
  if (url.protocol === 'http:' && token && !isLoopback(url.hostname)) {
    throw invalid('host', `${url.host} would be sent the token in the clear: use https`)
  }
  if (ca !== undefined && !ca.includes('-----BEGIN CERTIFICATE-----')) throw invalid('ca', 'there is no certificate in PEM form')
  return { url, own: false, ...credentials }
}

function invalid(field: string, detail: string): InvalidRequest {
  return new InvalidRequest(detail, { code: 'invalid_argument', field })
}

function notAnAddress(host: string): InvalidRequest {
  const shown = host.includes('@') ? `…${host.slice(host.lastIndexOf('@'))}` : host // without what may be a password
  return invalid('host', `${JSON.stringify(shown)} is not the address of a daemon: say https://HOST:PORT or unix:/PATH`)
}

function readConfigured(variable: string, file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new InvalidRequest(`read the file of ${variable}: ${(error as Error).message}`, { code: 'invalid_argument', field: variable, cause: error })
  }
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(host)
}

/** The directory with the socket of the user's daemon, as the daemon finds it. */
function runtimeDir(env: NodeJS.ProcessEnv): string {
  if (env['RAMET_RUNTIME_DIR']) return env['RAMET_RUNTIME_DIR']
  const xdg = env['XDG_RUNTIME_DIR'] ?? ''
  if (isAbsolute(xdg)) return join(xdg, 'ramet')
  const uid = process.getuid?.() ?? 0
  const session = `/run/user/${uid}`
  if (statSync(session, { throwIfNoEntry: false })?.isDirectory()) return join(session, 'ramet')
  if (uid === 0) return '/run/ramet'
  const tmp = env['TMPDIR'] ?? ''
  return join(isAbsolute(tmp) ? tmp : '/tmp', `ramet-${uid}`)
}

/** Finds the program: RAMET_BIN, the package of the platform, or PATH. */
export function findProgram(env: NodeJS.ProcessEnv = process.env): string | undefined {
  if (env['RAMET_BIN']) return env['RAMET_BIN']
  try {
    const program = createRequire(import.meta.url).resolve(`@ramet/${process.platform}-${process.arch}/bin/ramet`)
    if (isExecutable(program)) return program
  } catch {
    // The package is optional: it is not there on other platforms, nor with --omit=optional.
  }
  return (env['PATH'] ?? '')
    .split(delimiter)
    .filter(isAbsolute)
    .map((dir) => join(dir, 'ramet'))
    .find(isExecutable)
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

/** Starts the user's daemon and waits until it takes requests. Any command of the program does that. */
export async function startDaemon(env: NodeJS.ProcessEnv = process.env): Promise<void> {
  const program = findProgram(env)
  if (program === undefined) {
    throw new Unavailable(
      `no daemon runs, and there is no program ramet to start one: neither in RAMET_BIN, nor the package @ramet/${process.platform}-${process.arch}, nor in PATH`,
      { code: 'unavailable', remedy: 'install the program, or name another daemon in RAMET_HOST and RAMET_TOKEN' },
    )
  }
  const child = spawn(program, ['api', '/healthz'], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...env, RAMET_HOST: '' } })
  const said: Buffer[] = []
  child.stderr.on('data', (chunk: Buffer) => said.push(chunk))
  await new Promise<void>((resolve, reject) => {
    child.once('error', (error) => {
      reject(new Unavailable(`start the daemon: ${error.message}`, { code: 'unavailable', cause: error, remedy: `look at ${program}` }))
    })
    child.once('close', (code, signal) => {
      if (code === 0) return resolve()
      const text = Buffer.concat(said).toString().trim()
      reject(new Unavailable(`start the daemon with ${program}: ${text || `it ended with ${signal ?? code}`}`, { code: 'unavailable' }))
    })
  })
}
