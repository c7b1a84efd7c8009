import type { components } from './generated/openapi.js'
import { segment, type CallOptions, type ChangeOptions, type Request, type Transport } from './transport.js'

/** A secret without its value, which nothing ever tells. */
export type Secret = components['schemas']['Secret']
/** A request of a sandbox that waits for a decision, or did. */
export type HeldRequest = components['schemas']['HeldRequest']

export interface SecretOptions extends CallOptions {
  /** The secret itself. */
  value: string
  /** Names of the servers whose requests it is put into, without wildcards. */
  names: readonly string[]
  /** Header that it is put into. */
  header: string
  /** Only into requests with these methods. */
  methods?: readonly string[] | undefined
  /** Only into requests for these paths; a * at the end stands for any rest. */
  paths?: readonly string[] | undefined
  /** Also into requests without TLS. */
  plain?: boolean | undefined
}

/** The secrets that a daemon puts into requests outside of sandboxes. */
export class SecretStore {
  /** @internal */
  constructor(private readonly transport: Transport) {}

  async list(options: CallOptions = {}): Promise<Secret[]> {
    return (await this.transport.call<{ items: Secret[] }>({ method: 'GET', path: '/v1/secrets', signal: options.signal })).items
  }

  /** Makes a secret or replaces it. */
  async set(name: string, options: SecretOptions): Promise<Secret> {
    const { signal, ...json } = options
    return this.transport.call<Secret>({ method: 'PUT', path: `/v1/secrets/${segment(name)}`, json, signal, repeatable: true })
  }

  async remove(name: string, options: ChangeOptions = {}): Promise<void> {
    const { signal, idempotencyKey } = options
    await this.transport.call({ method: 'DELETE', path: `/v1/secrets/${segment(name)}`, signal, idempotencyKey, repeatable: true })
  }
}

/** The requests of a sandbox that rules of its network hold until somebody decides. */
export class Held {
  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly sandbox: string,
  ) {}

  private async ask(method: Request['method'], rest: string, options: ChangeOptions, json?: unknown): Promise<HeldRequest[]> {
    const { signal, idempotencyKey } = options
    const path = `/v1/sandboxes/${segment(this.sandbox)}/held${rest}`
    const page = await this.transport.call<{ items: HeldRequest[] }>({ method, path, json, signal, idempotencyKey, repeatable: true, sandbox: this.sandbox })
    return page.items
  }

  list(options: CallOptions = {}): Promise<HeldRequest[]> {
    return this.ask('GET', '', options)
  }

  /** Sends a request, or all that wait. One that may have been sent already is only sent `again` on request. */
  release(id?: string, options: ChangeOptions & { again?: boolean | undefined } = {}): Promise<HeldRequest[]> {
    return this.ask('POST', '/release', options, { id, again: options.again })
  }

  /** Drops a request, or all that wait: they are never sent. */
  drop(id?: string, options: ChangeOptions = {}): Promise<HeldRequest[]> {
    return this.ask('POST', '/drop', options, { id })
  }
}
