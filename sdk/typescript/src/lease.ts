import { InvalidRequest, NotFound } from './errors.js'
import type { Lifetime } from './create.js'
import type { Sandbox } from './sandbox.js'

/** The label that says whose a sandbox is. */
const ownerLabel = 'owner'

/** What the sandboxes that a client makes have in common. */
export interface OwnerOptions {
  /** A label of all sandboxes that the client makes, by which `list({ owner })` finds them. */
  owner?: string | undefined
  /**
   * Milliseconds after which the daemon ends the sandboxes of a client that is not there any more; at least 1000. The client
   * renews their time, and destroys them at the end of its block of `await using`. One with a `ttl` of its own is left alone.
   */
  lease?: number | undefined
}

/** @internal Returns labels with that of an owner. */
export function labels(metadata: Record<string, string> | undefined, owner: string | undefined): Record<string, string> | undefined {
  return owner === undefined ? metadata : { ...metadata, [ownerLabel]: owner }
}

/** @internal Renews the time to live of a client's sandboxes. If the client is killed, nobody does, and the daemon ends them. */
export class Lease {
  private readonly sandboxes = new Map<string, Sandbox>()
  private timer: NodeJS.Timeout | undefined
  private renewing: Promise<void> | undefined

  constructor(private readonly time: number) {
    if (!(time >= 1000)) {
      throw new InvalidRequest(`${time} ms is less than 1000 ms, in which a lease cannot be renewed in time`, { code: 'invalid_argument', field: 'lease' })
    }
  }

  /** Returns the options of sandboxes that are being made, whose time is the lease's unless it is their own. */
  lived<O extends Lifetime>(options: O): O {
    return options.ttl === undefined ? { ...options, ttl: this.time } : options
  }

  /** Renews the time of a sandbox, too. */
  add(sandbox: Sandbox): void {
    this.sandboxes.set(sandbox.id, sandbox)
    this.timer ??= setInterval(() => {
      this.renewing ??= this.renew().finally(() => (this.renewing = undefined))
    }, this.time / 3).unref()
  }

  /** Renews no more. */
  stop(): void {
    clearInterval(this.timer)
    this.timer = undefined
  }

  /** Destroys the sandboxes that are left, but for those that are to be kept. */
  async end(): Promise<void> {
    this.stop()
    await this.renewing
    const left = [...this.sandboxes.values()]
    this.sandboxes.clear()
    // One that fails is gone, or the daemon does not answer: then it ends when its time is over.
    await Promise.allSettled(left.map((sandbox) => (sandbox.isDetached ? sandbox.update({ ttl: 0 }) : sandbox.destroy())))
  }

  private async renew(): Promise<void> {
    for (const [id, sandbox] of [...this.sandboxes]) {
      try {
        await sandbox.update({ ttl: sandbox.isDetached ? 0 : this.time })
        if (sandbox.isDetached) this.sandboxes.delete(id)
      } catch (error) {
        if (error instanceof NotFound) this.sandboxes.delete(id)
        // Else the daemon is being replaced: there are two more times.
      }
    }
  }
}
