import { createServer, type AddressInfo, type Server } from 'node:net'
import type { Duplex } from 'node:stream'
import { InvalidRequest, Timeout, Unavailable } from './errors.js'
import type { components } from './generated/openapi.js'
import type { PortInfo } from './models.js'
import { segment, type CallOptions, type ChangeOptions, type Request, type Transport } from './transport.js'

/** A port of the daemon's host that leads to one of a sandbox. */
export type PublishedPort = components['schemas']['PublishedPort']

export interface PublishOptions extends ChangeOptions {
  /** Port of the daemon's host; any free one if absent. */
  hostPort?: number | undefined
  /** Address of the daemon's host; 127.0.0.1 if absent. */
  address?: string | undefined
  /** Requests must carry it, as `Authorization: Bearer`; the port speaks HTTP only then. 16 to 256 characters. */
  token?: string | undefined
}

export interface PortOptions extends CallOptions {
  /** Milliseconds to wait until a process listens. */
  wait?: number | undefined
}

/** A port of this machine that leads to one of a sandbox, until it is closed. */
export interface Forward extends AsyncDisposable {
  readonly host: string
  readonly port: number
  /** `http://HOST:PORT`. */
  readonly url: string
  close(): Promise<void>
}

/** A TCP port of a sandbox. */
export class Port implements AsyncDisposable {
  private own: Promise<Forward> | undefined

  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly sandbox: string,
    readonly port: number,
  ) {
    if (!Number.isInteger(port) || port < 1 || port > 65535) {
      throw new InvalidRequest(`${port} is not a port: say 1 to 65535`, { code: 'invalid_argument', field: 'port' })
    }
  }

  /** Its sandbox and number, for `JSON.stringify`. */
  toJSON(): { sandbox: string; port: number } {
    return { sandbox: this.sandbox, port: this.port }
  }

  private request(options: PortOptions): Request {
    const wait = options.wait === undefined ? undefined : `${Math.ceil(options.wait)}ms`
    return { method: 'GET', path: `/v1/sandboxes/${segment(this.sandbox)}/ports/${this.port}`, query: { wait }, signal: options.signal, sandbox: this.sandbox }
  }

  /** Waits until a process listens: 30 s, or so many milliseconds. */
  async wait(timeout = 30_000, options: CallOptions = {}): Promise<PortInfo> {
    try {
      return await this.transport.call<PortInfo>(this.request({ ...options, wait: timeout }))
    } catch (error) {
      if (!(error instanceof Unavailable) || error.status !== 503) throw error
      throw new Timeout(`no process listens on port ${this.port} after ${timeout} ms`, { cause: error, remedy: 'look at the output of the server' })
    }
  }

  /** Connects to it. Each direction ends by itself. */
  async connect(options: PortOptions = {}): Promise<Duplex> {
    const { socket, head } = await this.transport.upgrade({ ...this.request(options), protocol: 'tcp' })
    if (head.length > 0) socket.unshift(head)
    return socket
  }

  /** Lets a port of this machine lead to it: any free one of 127.0.0.1, or as asked for. It does not keep the program alive. */
  async forward(options: { host?: string | undefined; port?: number | undefined } = {}): Promise<Forward> {
    const { host = '127.0.0.1', port = 0 } = options
    const open = new Set<Duplex>()
    const server: Server = createServer({ allowHalfOpen: true }, (local) => {
      open.add(local)
      local.once('close', () => open.delete(local))
      local.on('error', () => local.destroy())
      this.connect({ wait: 1_000 }).then(
        (remote) => {
          open.add(remote)
          remote.once('close', () => {
            open.delete(remote)
            local.destroySoon()
          })
          remote.on('error', () => local.destroy())
          local.once('close', () => remote.destroy())
          local.pipe(remote)
          remote.pipe(local)
        },
        () => local.resetAndDestroy(),
      )
    })
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(port, host, resolve)
    })
    server.unref()
    const bound = (server.address() as AddressInfo).port
    const close = async (): Promise<void> => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()))
      for (const socket of open) socket.destroy()
      await closed
    }
    return { host, port: bound, url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}`, close, [Symbol.asyncDispose]: close }
  }

  /** Lets a port of the daemon's host lead to it, until `Sandbox.unpublish` or the end of the sandbox. */
  async publish(options: PublishOptions = {}): Promise<PublishedPort> {
    const { hostPort, address, token, signal, idempotencyKey } = options
    return this.transport.call<PublishedPort>({
      method: 'POST',
      path: `/v1/sandboxes/${segment(this.sandbox)}/ports/published`,
      json: { port: this.port, host_port: hostPort, address, token },
      signal,
      idempotencyKey,
      repeatable: true,
      sandbox: this.sandbox,
    })
  }

  /** A URL of this machine that leads to it, until `close`. */
  async url(): Promise<string> {
    this.own ??= this.forward()
    return (await this.own).url
  }

  /** A URL that a browser can open once; the daemon must listen for browsers. */
  async browserUrl(options: CallOptions & { path?: string | undefined } = {}): Promise<string> {
    const { url } = await this.transport.call<{ url: string }>({
      method: 'POST',
      path: `/v1/sandboxes/${segment(this.sandbox)}/port-sessions`,
      json: { port: this.port, path: options.path },
      signal: options.signal,
      sandbox: this.sandbox,
    })
    return url
  }

  /** Ends what `url` opened. */
  async close(): Promise<void> {
    await (await this.own)?.close()
    this.own = undefined
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}
