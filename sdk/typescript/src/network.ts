/**
 * The network of a sandbox: the name of a profile (`'none'`, `'open'`, `'host-registries'`, or one of the daemon's), or a
 * document, whose members are those of the REST interface.
 */
export type NetworkOption = string | NetworkRequest

/** A rule: a text such as `'pypi.org:443'`, `'*.example.com'`, `'sandbox=NAME:5432'`, or an object. */
export type NetworkRule = string | Record<string, unknown>

export interface NetworkRequest {
  /** Name of a profile, to which the rules are added. */
  profile?: string
  default?: 'deny' | 'allow'
  allow?: readonly NetworkRule[]
  deny?: readonly NetworkRule[]
  /** Sandboxes that may connect to this one. */
  accept?: readonly NetworkRule[]
  /** Treatment of HTTP requests by name: secrets, methods, paths, holding of writes. */
  rules?: Record<string, Record<string, unknown>>
  limits?: { connections?: number; rate_mbit?: number; dns_per_s?: number }
}

/** @internal */
export function networkBody(network: NetworkOption | undefined): NetworkRequest | undefined {
  return typeof network === 'string' ? { profile: network } : network
}
