import { InvalidRequest } from './errors.js'
import type { components } from './generated/openapi.js'
import { fromWire } from './models.js'
import { segment, type CallOptions, type ChangeOptions, type Request, type Transport } from './transport.js'

/** The document that says what a sandbox may reach. Its members are those of the REST interface and of files. */
export type NetworkRequest = components['schemas']['NetworkRequest']
/** The network of a sandbox: the document, with the profiles that it names, and what bounds it. */
export type SandboxNetwork = components['schemas']['SandboxNetwork']
export type NetworkLogEntry = components['schemas']['NetworkLogEntry']
export type NetworkTestResult = components['schemas']['NetworkTestResult']
export type NetworkProfile = components['schemas']['NetworkProfile']

/**
 * The name of a profile (`'none'`, `'open'`, `'host-registries'`, or one of the daemon's), what is allowed, such as
 * `['example.org:443']`, or a document.
 */
export type NetworkOption = string | readonly string[] | NetworkRequest

/**
 * Headers that are put into requests outside of the sandbox, by `DOMAIN:HEADER`, such as `api.example.com:Authorization`. In a value
 * `${NAME}` stands for a secret of the daemon.
 */
export type Secrets = Record<string, string>

/** Returns the document of a request. */
export function networkBody(network: NetworkOption | undefined, secrets: Secrets = {}): NetworkRequest | undefined {
  const document: NetworkRequest | undefined =
    typeof network === 'string' ? { profile: network } : Array.isArray(network) ? { allow: [...(network as string[])] } : (network as NetworkRequest | undefined)
  const places = Object.entries(secrets)
  if (places.length === 0) return document
  const rules = { ...document?.rules }
  for (const [place, value] of places) {
    const colon = place.lastIndexOf(':')
    const [domain, header] = [place.slice(0, colon), place.slice(colon + 1)]
    if (colon < 1 || header === '') {
      throw new InvalidRequest(`${JSON.stringify(place)} is not DOMAIN:HEADER, such as "api.example.com:Authorization"`, { code: 'invalid_argument', field: 'secrets' })
    }
    rules[domain] = { ...rules[domain], secret: { header, value } }
  }
  return { ...document, rules }
}

/** @internal Returns which requests wait: true stands for those that change something. */
export function holdOf(hold: boolean | 'writes' | undefined): 'writes' | undefined {
  return hold === true ? 'writes' : hold || undefined
}

/** The network of a sandbox. */
export class Network {
  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly sandbox: string,
  ) {}

  private request(method: Request['method'], rest: string, options: CallOptions): Request {
    return { method, path: `/v1/sandboxes/${segment(this.sandbox)}/network${rest}`, signal: options.signal, sandbox: this.sandbox }
  }

  /** Asks for the document that is in force. */
  async get(options: CallOptions = {}): Promise<SandboxNetwork> {
    return (await this.transport.raw(this.request('GET', '', options))) as SandboxNetwork
  }

  /** Replaces the whole document. What it does not allow any more is cut. */
  async set(network: NetworkOption, options: ChangeOptions & { secrets?: Secrets | undefined } = {}): Promise<SandboxNetwork> {
    const json = networkBody(network, options.secrets)
    return (await this.transport.raw({ ...this.request('PUT', '', options), json, repeatable: true })) as SandboxNetwork
  }

  /** Asks whether a process in the sandbox may connect, without connecting. */
  async test(host: string, port?: number, options: CallOptions & { protocol?: 'tcp' | 'udp' | 'echo' | undefined } = {}): Promise<NetworkTestResult> {
    const json = { host, port, protocol: options.protocol }
    return this.transport.call<NetworkTestResult>({ ...this.request('POST', '/test', options), json })
  }

  /** Yields the decisions about connections that are kept, and with `follow` goes on with new ones. */
  async *log(options: CallOptions & { follow?: boolean | undefined } = {}): AsyncGenerator<NetworkLogEntry, void, undefined> {
    for await (const event of this.transport.events({ ...this.request('GET', '/log', options), query: { follow: options.follow } })) {
      if (event.name === 'end') return
      if (event.name === 'event') yield fromWire<NetworkLogEntry>(event.data)
    }
  }
}
