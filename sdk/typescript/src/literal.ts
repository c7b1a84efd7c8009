/**
 * Reads the text of a Python value, as `repr` writes it, if it is one of JSON: None, a boolean, a number, a text, a list
 * or tuple of such, or a dictionary of them by text. Returns undefined for all else.
 */
export function pythonLiteral(text: string): unknown {
  let at = 0
  const failed = Symbol('failed')

  function space(): void {
    while (' \n\t\r'.includes(text[at] ?? 'x')) at++
  }

  function value(depth: number): unknown {
    space()
    if (depth > 200) return failed
    const char = text[at]
    if (char === '[') return sequence(']', depth)
    if (char === '(') return sequence(')', depth)
    if (char === '{') return dictionary(depth)
    if (char === "'" || char === '"') return string()
    const word = /(?:None|True|False)(?!\w)|-?\d+(?:\.\d*)?(?:e[+-]?\d+)?(?![\w.])/y
    word.lastIndex = at
    const found = word.exec(text)?.[0]
    if (found === undefined) return failed
    at += found.length
    return found === 'None' ? null : found === 'True' ? true : found === 'False' ? false : Number(found)
  }

  function sequence(end: string, depth: number): unknown {
    const items: unknown[] = []
    at++
    for (space(); text[at] !== end; space()) {
      const item = value(depth + 1)
      if (item === failed) return failed
      items.push(item)
      space()
      if (text[at] === ',') at++
      else if (text[at] !== end || (end === ')' && items.length === 1)) return failed // parentheses are no tuple
    }
    at++
    return items
  }

  function dictionary(depth: number): unknown {
    const entries: [string, unknown][] = []
    at++
    for (space(); text[at] !== '}'; space()) {
      const key = text[at] === "'" || text[at] === '"' ? string() : failed
      space()
      if (typeof key !== 'string' || text[at] !== ':') return failed
      at++
      const item = value(depth + 1)
      if (item === failed) return failed
      entries.push([key, item])
      space()
      if (text[at] === ',') at++
      else if (text[at] !== '}') return failed
    }
    at++
    return Object.fromEntries(entries)
  }

  function string(): unknown {
    const quote = text[at++]
    let out = ''
    for (; text[at] !== quote; at++) {
      const char = text[at]
      if (char === undefined) return failed
      if (char !== '\\') {
        out += char
        continue
      }
      const escape = text[++at] ?? ''
      const simple: Record<string, string> = { n: '\n', r: '\r', t: '\t', '\\': '\\', "'": "'", '"': '"' }
      const digits = { x: 2, u: 4, U: 8 }[escape]
      if (escape in simple) out += simple[escape]
      else if (digits) {
        const code = Number.parseInt(text.slice(at + 1, at + 1 + digits), 16)
        if (Number.isNaN(code) || code > 0x10ffff) return failed
        out += String.fromCodePoint(code)
        at += digits
      } else return failed
    }
    at++
    return out
  }

  const result = value(0)
  space()
  return result === failed || at !== text.length ? undefined : result
}
