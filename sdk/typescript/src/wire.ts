/** What travels: server-sent events and frames, as package internal/httpwire has them. */

type Bytes = AsyncIterable<Uint8Array>

/** One server-sent event. */
export interface WireEvent {
  name: string
  data: unknown
  id: string | undefined
}

// The largest event is what a cell showed: an interpreter's answer has up to 8 MiB.
const maxEvent = 9 << 20
const maxChunk = 64 << 10
const maxFinal = 1 << 20

/** A stream ended too early, or is not what was announced. */
export class BrokenOff extends Error {}

/** A stream has what no daemon sends: asking again would not help. */
export class Malformed extends BrokenOff {}

/** Reads server-sent events. A stream that ends inside an event is broken off. */
export async function* readEvents(input: Bytes): AsyncGenerator<WireEvent, void, undefined> {
  const decoder = new TextDecoder()
  const state: { name: string; data: string[]; id: string | undefined; seen: boolean } = { name: '', data: [], id: undefined, seen: false }
  let rest: string[] = []
  let size = 0
  function* lines(text: string): Generator<WireEvent> {
    let from = 0
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', from)) {
      rest.push(text.slice(from, end))
      let line = rest.length === 1 ? (rest[0] as string) : rest.join('')
      rest = []
      from = end + 1
      if (line.endsWith('\r')) line = line.slice(0, -1)
      if (line !== '') {
        field(line)
        continue
      }
      if (state.seen) yield { name: state.name, data: parsed(state.data.join('\n')), id: state.id }
      Object.assign(state, { name: '', data: [], id: undefined, seen: false })
      size = 0
    }
    if (from < text.length) rest.push(text.slice(from))
  }
  function field(line: string): void {
    const colon = line.indexOf(':')
    const name = colon < 0 ? line : line.slice(0, colon)
    let value = colon < 0 ? '' : line.slice(colon + 1)
    if (value.startsWith(' ')) value = value.slice(1)
    if (name === 'event') [state.name, state.seen] = [value, true]
    else if (name === 'data') [state.seen] = [state.data.push(value) > 0]
    else if (name === 'id') state.id = value
  }
  for await (const chunk of input) {
    size += chunk.length
    if (size > maxEvent + chunk.length) throw new Malformed('an event is too long')
    yield* lines(decoder.decode(chunk, { stream: true }))
  }
  if (rest.length > 0 || state.seen) throw new BrokenOff('the stream ended inside an event')
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new Malformed('the data of an event are not JSON')
  }
}

/** A frame of an exec: output, or at last how the command ended. */
export type Frame = { stream: 'stdout' | 'stderr'; data: Uint8Array } | { final: Record<string, unknown> }

/** Reads frames: a stream (1 byte), the length of the payload (4 bytes, big-endian) and the payload. The last one is the end. */
export async function* readFrames(input: Bytes): AsyncGenerator<Frame, void, undefined> {
  let buffer: Uint8Array = new Uint8Array(0)
  for await (const chunk of input) {
    buffer = buffer.length === 0 ? chunk : Buffer.concat([buffer, chunk])
    let at = 0
    while (buffer.length - at >= 5) {
      const stream = buffer[at] as number
      const length = new DataView(buffer.buffer, buffer.byteOffset + at + 1, 4).getUint32(0)
      if (stream < 1 || stream > 3 || length > (stream === 3 ? maxFinal : maxChunk)) {
        throw new Malformed(`a frame has stream ${stream} with ${length} bytes`)
      }
      if (buffer.length - at - 5 < length) break
      const payload = buffer.subarray(at + 5, at + 5 + length)
      at += 5 + length
      if (stream === 3) {
        yield { final: finalOf(new TextDecoder().decode(payload)) }
        return
      }
      yield { stream: stream === 1 ? 'stdout' : 'stderr', data: payload }
    }
    buffer = buffer.subarray(at)
  }
  throw new BrokenOff('the stream ended before the last frame')
}

/** Returns the last message of an exec, which has exactly one of exit and error. */
export function finalOf(text: string): Record<string, unknown> {
  const doc = parsed(text)
  if (doc === null || typeof doc !== 'object' || ('exit' in doc && 'error' in doc) || !('exit' in doc || 'error' in doc)) {
    throw new Malformed('the last message is neither a result nor an error')
  }
  return doc as Record<string, unknown>
}

/** Returns the bytes of the data of an event of output. */
export function chunkBytes(chunk: { data: string; encoding: string }): Uint8Array {
  if (chunk.encoding === 'utf8' || chunk.encoding === 'base64') return Buffer.from(chunk.data, chunk.encoding)
  throw new Malformed(`a piece of output has the unknown encoding ${JSON.stringify(chunk.encoding)}`)
}
