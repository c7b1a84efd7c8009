import assert from 'node:assert/strict'
import { test } from 'node:test'
import { BoundedText } from '../../lib/integrations/adapter.js'

function cut(limit: number, ...parts: string[]): string {
  const text = new BoundedText(limit)
  for (const part of parts) text.add(part)
  return String(text)
}

test('a text that is short is whole', () => {
  assert.equal(cut(200), '')
  assert.equal(cut(200, 'a'.repeat(150), 'b'.repeat(50)), 'a'.repeat(150) + 'b'.repeat(50))
})

test('a text that is long is its beginning and its end, in whole lines', () => {
  const lines = Array.from({ length: 5000 }, (_, at) => `line ${at}\n`)
  const parts: [string[], string][] = [[lines, 'in lines'], [[lines.join('')], 'at once'], [lines.join('').match(/[^]{1,7}/g) ?? [], 'in pieces']]
  for (const [given, how] of parts) {
    const out = cut(1000, ...given)
    const [, head = '', left, tail = ''] = /^([^]*\n)\[(\d+) characters are left out: .*\]\n([^]*)$/.exec(out) ?? []
    assert.ok(head.startsWith('line 0\nline 1\n') && head.length <= 500, how)
    assert.ok(/^line \d+\n/.test(tail) && tail.endsWith('line 4999\n') && tail.length <= 500, how)
    assert.equal(head.length + Number(left) + tail.length, lines.join('').length, how)
  }
})

test('no character is cut in two', () => {
  for (const before of ['', 'x']) {
    const out = cut(200, `${before}${'😀'.repeat(500)}${before}`)
    assert.match(out, /characters are left out/)
    assert.doesNotMatch(out, /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/)
  }
})
