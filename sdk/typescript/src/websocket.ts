import { createHash, randomBytes } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { Unavailable } from './errors.js'
import type { Request, Transport } from './transport.js'
import { BrokenOff } from './wire.js'

// The client's part of RFC 6455. Node has none that takes a Unix socket or a header.

const enum Op {
  Continuation = 0,
  Text = 1,
  Binary = 2,
  Close = 8,
  Ping = 9,
  Pong = 10,
}

// The daemon sends messages of at most 1 MiB.
const maxMessage = 4 << 20
const acceptSuffix = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'

/** A WebSocket to the daemon. */
export class WebSocketConnection {
  private closed = false

  private constructor(
    private readonly socket: Duplex,
    private early: Buffer,
    private readonly transport: Transport,
    private readonly request: Request,
  ) {
    // An error that nobody waits for is found by the next read or write.
    socket.on('error', () => undefined)
  }

  /** Opens a WebSocket. */
  static async open(transport: Transport, request: Request): Promise<WebSocketConnection> {
    const key = randomBytes(16).toString('base64')
    const { answer, socket, head } = await transport.upgrade({
      ...request,
      protocol: 'websocket',
      headers: { ...request.headers, 'sec-websocket-key': key, 'sec-websocket-version': '13' },
    })
    const accept = createHash('sha1')
      .update(key + acceptSuffix)
      .digest('base64')
    if (answer.headers['sec-websocket-accept'] !== accept) {
      socket.destroy()
      throw new Unavailable('the answer is not one of a WebSocket of a Ramet daemon', { code: 'unavailable' })
    }
    return new WebSocketConnection(socket, head, transport, request)
  }

  /** Sends a message, and waits until there is room for the next one. */
  async send(message: string | Uint8Array): Promise<void> {
    if (typeof message === 'string') await this.write(Op.Text, Buffer.from(message))
    else await this.write(Op.Binary, message)
  }

  private async write(op: Op, payload: Uint8Array): Promise<void> {
    if (this.socket.destroyed || this.socket.writableEnded) return
    const long = payload.length > 0xffff
    const short = payload.length < 126
    const head = Buffer.alloc(2 + (short ? 0 : long ? 8 : 2) + 4)
    head[0] = 0x80 | op
    head[1] = 0x80 | (short ? payload.length : long ? 127 : 126)
    if (long) head.writeBigUInt64BE(BigInt(payload.length), 2)
    else if (!short) head.writeUInt16BE(payload.length, 2)
    const mask = randomBytes(4)
    mask.copy(head, head.length - 4)
    const masked = Buffer.allocUnsafe(payload.length)
    for (let i = 0; i < payload.length; i++) masked[i] = (payload[i] as number) ^ (mask[i & 3] as number)
    if (this.socket.write(Buffer.concat([head, masked]))) return
    await new Promise<void>((resolve) => {
      const done = (): void => {
        this.socket.off('drain', done)
        this.socket.off('close', done)
        resolve()
      }
      this.socket.on('drain', done)
      this.socket.on('close', done)
    })
  }

  /** Yields the messages of the daemon, text as strings, until it closes the connection. It may be called once. */
  async *messages(): AsyncGenerator<string | Uint8Array, void, undefined> {
    const { signal } = this.request
    const aborted = (): void => void this.socket.destroy()
    signal?.addEventListener('abort', aborted, { once: true })
    try {
      if (signal?.aborted) throw signal.reason
      yield* this.read()
    } catch (error) {
      throw await this.transport.broken(this.request, error)
    } finally {
      signal?.removeEventListener('abort', aborted)
      this.destroy()
    }
  }

  private async *read(): AsyncGenerator<string | Uint8Array, void, undefined> {
    let buffer = this.early
    let parts: Buffer[] = []
    let kind = Op.Binary
    for await (const chunk of withFirst(buffer, this.socket)) {
      buffer = buffer === chunk ? chunk : Buffer.concat([buffer, chunk])
      for (;;) {
        const frame = parseFrame(buffer)
        if (frame === undefined) break
        buffer = buffer.subarray(frame.length)
        switch (frame.op) {
          case Op.Ping:
            await this.write(Op.Pong, frame.payload)
            continue
          case Op.Pong:
            continue
          case Op.Close:
            this.closed = true
            await this.write(Op.Close, frame.payload.subarray(0, 2))
            this.socket.end()
            return
          case Op.Text:
          case Op.Binary:
            kind = frame.op
        }
        parts.push(frame.payload)
        if (parts.reduce((sum, part) => sum + part.length, 0) > maxMessage) throw new BrokenOff('a message is too long')
        if (!frame.final) continue
        const message = parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)
        parts = []
        yield kind === Op.Text ? message.toString() : message
      }
    }
    throw new BrokenOff('the connection ended without a last message')
  }

  /** Ends the connection in order. */
  async close(): Promise<void> {
    if (!this.closed) await this.write(Op.Close, Buffer.from([0x03, 0xe8]))
    this.closed = true
    this.socket.end()
    this.socket.destroy()
  }

  /** Ends the connection at once. */
  destroy(): void {
    this.socket.destroy()
  }
}

async function* withFirst(first: Buffer, rest: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  if (first.length > 0) yield first
  yield* rest
}

function parseFrame(buffer: Buffer): { op: Op; final: boolean; payload: Buffer; length: number } | undefined {
  if (buffer.length < 2) return undefined
  const first = buffer[0] as number
  const second = buffer[1] as number
  if (second & 0x80 || first & 0x70) throw new BrokenOff('a frame of the WebSocket is invalid')
  let size = second & 0x7f
  let at = 2
  if (size === 126) {
    if (buffer.length < 4) return undefined
    size = buffer.readUInt16BE(2)
    at = 4
  } else if (size === 127) {
    if (buffer.length < 10) return undefined
    const large = buffer.readBigUInt64BE(2)
    if (large > BigInt(maxMessage)) throw new BrokenOff('a frame of the WebSocket is too long')
    size = Number(large)
    at = 10
  }
  if (buffer.length < at + size) return undefined
  return { op: first & 0x0f, final: (first & 0x80) !== 0, payload: buffer.subarray(at, at + size), length: at + size }
}
