import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { version } from 'ramet'
import { resolveAddress } from '../lib/address.js'
import { mebibytes } from '../lib/create.js'
import { mapMembers } from '../lib/generated/openapi.js'
import { networkBody } from '../lib/network.js'
import { pythonLiteral } from '../lib/literal.js'
import { fromWire } from '../lib/models.js'
import { queryText, segment } from '../lib/transport.js'
import { BrokenOff, chunkBytes, readEvents, readFrames } from '../lib/wire.js'
import { packageDir, repository } from './harness.js'

/** Yields bytes in pieces of a length. */
async function* split(bytes: Uint8Array, length: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length)
}

async function all<T>(of: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = []
  for await (const one of of) out.push(one)
  return out
}

const frame = (stream: number, payload: string): Buffer => {
  const head = Buffer.alloc(5)
  head[0] = stream
  head.writeUInt32BE(Buffer.byteLength(payload), 1)
  return Buffer.concat([head, Buffer.from(payload)])
}

test('events are read wherever they are split', async () => {
  const text = ': comment\nid: 7\nevent: stdout\ndata: {"a":"é"}\n\nevent: end\r\ndata: [1,\r\ndata: 2]\r\n\r\n\n'
  for (const length of [1, 2, 3, 7, 1000]) {
    assert.deepEqual(await all(readEvents(split(Buffer.from(text), length))), [
      { name: 'stdout', data: { a: 'é' }, id: '7' },
      { name: 'end', data: [1, 2], id: undefined },
    ])
  }
})

test('a stream of events that is cut, is no JSON or never ends is broken off', async () => {
  for (const text of ['event: a\ndata: 1\n', 'event: a\ndata: {\n\n', 'event: a', 'data: 1']) {
    await assert.rejects(all(readEvents(split(Buffer.from(text), 4))), BrokenOff, text)
  }
  const endless = (async function* () {
    for (;;) yield Buffer.alloc(1 << 20, 'x')
  })()
  await assert.rejects(all(readEvents(endless)), BrokenOff)
})

test('frames are read wherever they are split', async () => {
  const bytes = Buffer.concat([frame(1, 'out'), frame(2, ''), frame(1, 'x'.repeat(65536)), frame(3, '{"exit":{}}')])
  for (const length of [64, 4096, 65_540, 100_000]) {
    const got = await all(readFrames(split(bytes, length)))
    assert.deepEqual(got.map((one) => ('final' in one ? one.final : [one.stream, one.data.length])), [['stdout', 3], ['stderr', 0], ['stdout', 65536], { exit: {} }])
  }
})

test('frames are read a byte at a time', async () => {
  const got = await all(readFrames(split(Buffer.concat([frame(2, 'err'), frame(3, '{"exit":{}}')]), 1)))
  assert.deepEqual(got.map((one) => ('final' in one ? one.final : Buffer.from(one.data).toString())), ['err', { exit: {} }])
})

test('frames that are cut, of no stream, too long or without an end are broken off', async () => {
  const long = Buffer.from([1, 0, 1, 0, 1])
  for (const bytes of [frame(1, 'out'), frame(1, 'out').subarray(0, 6), frame(4, ''), frame(0, ''), long, frame(3, '{}'), frame(3, '{"exit":1,"error":2}'), frame(3, '!')]) {
    await assert.rejects(all(readFrames(split(bytes, 3))), BrokenOff)
  }
  assert.throws(() => chunkBytes({ data: '', encoding: 'rot13' }), BrokenOff)
})

test('random bytes are read or broken off, and nothing else', async () => {
  let seed = 1
  const random = (): number => (seed = (seed * 48271) % 0x7fffffff)
  for (let round = 0; round < 500; round++) {
    const bytes = Buffer.from(Array.from({ length: random() % 64 }, () => random() % (round % 2 ? 256 : 6)))
    for (const read of [readFrames, readEvents]) {
      await all<unknown>(read(split(bytes, 5))).catch((error: unknown) => assert.ok(error instanceof BrokenOff, String(error)))
    }
    pythonLiteral(bytes.toString('latin1'))
  }
})

test('texts of Python values are values if they are of JSON', () => {
  const cases: [string, unknown][] = [
    ['None', null], ['True', true], ['-1.5e-07', -1.5e-7], ["'a\\'b\\n\\u00e9\\x41\\U0001f600'", "a'b\né A😀".replace(' ', '')],
    ['[1, [], {}]', [1, [], {}]], ['(1, 2)', [1, 2]], ['(1,)', [1]], ['()', []], ["{'a': {'b': (None,)}}", { a: { b: [null] } }],
  ]
  for (const [text, value] of cases) assert.deepEqual(pythonLiteral(text), value, text)
  for (const text of ['nan', 'array([1])', '<object>', '{1: 2}', '{1, 2}', '(1)', "b'x'", '1 2', '[1', "'", 'Nonesuch', 'np.float64(1.0)', '1j', "'\\N{DASH}'"]) {
    assert.equal(pythonLiteral(text), undefined, text)
  }
  assert.equal(pythonLiteral('['.repeat(10_000)), undefined)
})

test('members get the names of JavaScript, and keys of maps stay', () => {
  assert.deepEqual(fromWire({ exit_code: 1, env: { MY_VAR: 'x' }, items: [{ page_token: null, metadata: { a_b: '1' } }] }), {
    exitCode: 1, env: { MY_VAR: 'x' }, items: [{ pageToken: null, metadata: { a_b: '1' } }],
  })
})

test('a member is a map in all types or in none', () => {
  const { components } = JSON.parse(readFileSync(join(repository, 'api/openapi.json'), 'utf8')) as { components: { schemas: Record<string, { properties?: Record<string, { $ref?: string; items?: { $ref?: string } }> }> } }
  let seen = 0
  for (const [name, { properties = {} }] of Object.entries(components.schemas)) {
    for (const [member, schema] of Object.entries(properties)) {
      if (!mapMembers.has(member)) continue
      seen++
      const type = schema.$ref ?? schema.items?.$ref
      assert.ok(type === undefined || /\/Network(Policy|Request)$/.test(type), `${name}.${member} is an object, and elsewhere a map`)
    }
  }
  assert.ok(seen >= mapMembers.size)
})

test('sizes, queries and refs are of one form', () => {
  assert.deepEqual([mebibytes('memory', 512), mebibytes('memory', '1.5GiB'), mebibytes('memory', '2g'), mebibytes('memory', '100k'), mebibytes('memory', '7')], [512, 1536, 2048, 1, 7])
  for (const size of ['', 'x', '-1', '1 EiB', -5, Number.NaN]) assert.throws(() => mebibytes('disk', size), /^InvalidRequest: disk: /)
  assert.equal(queryText({ a: 'x y&', b: undefined, c: false, d: true, e: ['1', '2'], f: 0 }), '?a=x+y%26&d=true&e=1&e=2&f=0')
  assert.equal(queryText({}), '')
  assert.equal(segment('a/b'), 'a%2Fb')
  for (const ref of ['', '.', '..']) assert.throws(() => segment(ref), /is not an id or name/)
})

test('a network is a profile, what is allowed, or a document, and secrets are rules of it', () => {
  assert.equal(networkBody(undefined), undefined)
  assert.deepEqual(networkBody('open'), { profile: 'open' })
  assert.deepEqual(networkBody(['a:443']), { allow: ['a:443'] })
  const rules = { 'a.b': { methods: ['GET'] } }
  assert.deepEqual(networkBody({ default: 'deny', rules }, { 'a.b:X-Key': '${KEY}', 'c:H': 'v' }), {
    default: 'deny',
    rules: { 'a.b': { methods: ['GET'], secret: { header: 'X-Key', value: '${KEY}' } }, c: { secret: { header: 'H', value: 'v' } } },
  })
  assert.deepEqual(rules, { 'a.b': { methods: ['GET'] } })
  for (const place of ['a', 'a:', ':H', '']) assert.throws(() => networkBody('open', { [place]: 'v' }), /^InvalidRequest: secrets: .* is not DOMAIN:HEADER/)
})

test('the daemon is found by options, environment and user', () => {
  assert.deepEqual(resolveAddress({}, { RAMET_RUNTIME_DIR: '/r' }), { socket: '/r/ramet.sock', own: true })
  assert.deepEqual(resolveAddress({}, { XDG_RUNTIME_DIR: '/x' }), { socket: '/x/ramet/ramet.sock', own: true })
  assert.match(resolveAddress({}, {}).socket ?? '', /\/ramet(-\d+)?\/ramet\.sock$/)
  assert.deepEqual(resolveAddress({}, { RAMET_HOST: 'unix:/s', RAMET_TOKEN: 't' }), { socket: '/s', own: false, token: 't' })
  assert.equal(resolveAddress({ host: 'https://a:1/p/' }, { RAMET_HOST: 'unix:/s' }).url?.href, 'https://a:1/p/')
  assert.equal(resolveAddress({ host: 'http://127.0.0.1:1', token: 't' }, {}).token, 't')
  for (const [host, error] of [['http://a', /in the clear/], ['ftp://a', /not the address/], ['a', /not the address/], ['https://u:secret@a', /"…@a" is not/], ['unix:x', /no absolute path/]] as const) {
    assert.throws(() => resolveAddress({ host, token: 't' }, {}), error, host)
  }
  assert.throws(() => resolveAddress({ host: 'https://a', ca: 'x' }, {}), /no certificate/)
  assert.throws(() => resolveAddress({}, { RAMET_HOST: 'https://a', RAMET_CA: '/no/such/file' }), /read the file of RAMET_CA/)
})

test('the version is that of the package', () => {
  const { version: packaged, optionalDependencies } = JSON.parse(readFileSync(join(packageDir, 'package.json'), 'utf8')) as { version: string; optionalDependencies: Record<string, string> }
  assert.equal(version, packaged)
  assert.deepEqual(Object.values(optionalDependencies), [packaged, packaged])
})
