import { mebibytes, type Size } from './create.js'
import type { components } from './generated/openapi.js'
import { segment, type CallOptions, type ChangeOptions, type Transport } from './transport.js'

/** A directory that outlives sandboxes, and that several of them share. */
export type Volume = components['schemas']['Volume']

export interface VolumeOptions extends ChangeOptions {
  /** What its files may take together, 10 GiB if absent. */
  size?: Size | undefined
}

/** The volumes of a daemon. A sandbox has those that it was created with, and so have its children. */
export class Volumes {
  /** @internal */
  constructor(private readonly transport: Transport) {}

  async list(options: CallOptions = {}): Promise<Volume[]> {
    return (await this.transport.call<{ items: Volume[] }>({ method: 'GET', path: '/v1/volumes', signal: options.signal })).items
  }

  async create(name: string, options: VolumeOptions = {}): Promise<Volume> {
    const { signal, idempotencyKey, size } = options
    const json = { name, limit_mib: mebibytes('size', size) }
    return this.transport.call<Volume>({ method: 'POST', path: '/v1/volumes', json, signal, idempotencyKey })
  }

  /** A volume by its id or name. */
  async get(id: string, options: CallOptions = {}): Promise<Volume> {
    return this.transport.call<Volume>({ method: 'GET', path: `/v1/volumes/${segment(id)}`, signal: options.signal })
  }

  /** Removes a volume with its files. One that a sandbox has is a `Conflict`. */
  async remove(id: string, options: ChangeOptions = {}): Promise<void> {
    const { signal, idempotencyKey } = options
    await this.transport.call({ method: 'DELETE', path: `/v1/volumes/${segment(id)}`, signal, idempotencyKey, repeatable: true })
  }
}
