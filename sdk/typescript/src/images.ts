import { BrokenOff } from './wire.js'
import { fromWire, type ImageInfo, type Progress } from './models.js'
import { segment, type CallOptions, type Request, type Transport } from './transport.js'

export interface MakeImageOptions extends CallOptions {
  /** Called with the progress of the work. */
  onProgress?: ((progress: Progress) => void) | undefined
}

/** The images of a daemon. */
export class Images {
  /** @internal */
  constructor(private readonly transport: Transport) {}

  async list(options: CallOptions & { name?: string | undefined } = {}): Promise<ImageInfo[]> {
    const all: ImageInfo[] = []
    for await (const image of this.transport.pages<ImageInfo>({ method: 'GET', path: '/v1/images', query: { name: options.name }, signal: options.signal })) all.push(image)
    return all
  }

  /** Returns an image, by id or name. */
  async get(ref: string, options: CallOptions = {}): Promise<ImageInfo> {
    return this.transport.call<ImageInfo>({ method: 'GET', path: `/v1/images/${segment(ref)}`, signal: options.signal })
  }

  /** Builds an image of a distribution's packages. */
  build(name: string, options: MakeImageOptions & { from?: string | undefined; include?: readonly string[] | undefined; suite?: string | undefined } = {}): Promise<ImageInfo> {
    const { from = 'debian', include, suite } = options
    return this.make({ name, build: { from, include, suite } }, options)
  }

  /** Pulls an image from a registry. */
  pull(name: string, ref: string, options: MakeImageOptions = {}): Promise<ImageInfo> {
    return this.make({ name, ref }, options)
  }

  /** Imports a directory or archive of the daemon's host. */
  import(name: string, path: string, options: MakeImageOptions & { select?: string | undefined } = {}): Promise<ImageInfo> {
    return this.make({ name, path, select: options.select }, options)
  }

  /** Makes an image of the files of a sandbox or snapshot. */
  commit(sandbox: { id: string }, name: string, options: MakeImageOptions & { message?: string | undefined; replace?: boolean | undefined } = {}): Promise<ImageInfo> {
    const kind = sandbox.id.startsWith('snap_') ? 'snapshots' : 'sandboxes'
    const json = { name, message: options.message, replace: options.replace }
    return withProgress(this.transport, { method: 'POST', path: `/v1/${kind}/${segment(sandbox.id)}/commit`, json, signal: options.signal }, 'image', options)
  }

  private make(json: Record<string, unknown>, options: MakeImageOptions): Promise<ImageInfo> {
    return withProgress(this.transport, { method: 'POST', path: '/v1/images', json, signal: options.signal }, 'image', options)
  }

  /** Removes an image, or one of its names. */
  async remove(ref: string, options: CallOptions = {}): Promise<void> {
    await this.transport.call({ method: 'DELETE', path: `/v1/images/${segment(ref)}`, signal: options.signal, repeatable: true })
  }
}

/** @internal Sends a request whose answer is an event after those of the progress. */
export async function withProgress<T>(transport: Transport, request: Request, last: string, options: MakeImageOptions): Promise<T> {
  for await (const event of transport.events(request)) {
    if (event.name === 'progress') options.onProgress?.(fromWire<Progress>(event.data))
    if (event.name === last) return fromWire<T>(event.data)
  }
  throw await transport.broken(request, new BrokenOff('the stream ended before the last event'))
}
