package mcp

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxText is how many bytes of a text are answered: a model reads all of it, again in each turn.
const maxText = 24 << 10

// bounded keeps the beginning and the end of what is written to it.
type bounded struct {
	head, tail []byte
	left       int64 // bytes between head and tail
}

const half = maxText / 2

func (b *bounded) Write(p []byte) (int, error) {
	n := len(p)
	if room := half - len(b.head); room > 0 {
		room = min(room, len(p))
		b.head, p = append(b.head, p[:room]...), p[room:]
	}
	b.tail = append(b.tail, p...)
	if over := len(b.tail) - half; over > 0 {
		b.left += int64(over)
		b.tail = append(b.tail[:0], b.tail[over:]...)
	}
	return n, nil
}

// String returns the text, in which a line says how much was left out.
func (b *bounded) String() string {
	text := strings.ToValidUTF8(string(b.head), "�")
	if b.left > 0 {
		text += fmt.Sprintf("\n… %d bytes were left out …\n", b.left)
	}
	return text + strings.ToValidUTF8(string(b.tail), "�")
}

// cut returns the beginning of a text that is too long, and whether it was.
func cut(text string, most int) (string, bool) {
	if len(text) <= most {
		return text, false
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most], true
}

// lines joins texts that are not empty, one on each line.
func lines(texts ...string) string {
	var out []string
	for _, t := range texts {
		if t = strings.TrimRight(t, "\n"); t != "" {
			out = append(out, t)
		}
	}
	return strings.Join(out, "\n")
}
