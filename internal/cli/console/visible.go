package console

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// Visible returns a writer for output of code in a sandbox that has no terminal of its own. If to
// is a terminal, control characters are shown as ^[ and the like, so that the code cannot control
// the terminal or make it answer for the user. Otherwise bytes pass unchanged. finish writes the
// rest.
func Visible(to io.Writer) (w io.Writer, finish func() error) {
	if !IsTerminal(to) {
		return to, func() error { return nil }
	}
	v := &visibleWriter{to: to}
	return v, v.finish
}

// visibleWriter writes control characters as cat -v does. Line feeds and tabs pass. A carriage
// return becomes a line feed, so that it cannot hide the line.
type visibleWriter struct {
	to io.Writer
	// rest is an incomplete character, or a carriage return that a line feed may follow.
	rest []byte
}

// Write implements io.Writer.
func (v *visibleWriter) Write(p []byte) (int, error) {
	if err := v.write(append(v.rest, p...), false); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (v *visibleWriter) finish() error { return v.write(v.rest, true) }

func (v *visibleWriter) write(text []byte, all bool) error {
	out := make([]byte, 0, len(text)+16)
	for len(text) > 0 && (all || utf8.FullRune(text) && (text[0] != '\r' || len(text) > 1)) {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case r == '\r':
			if len(text) == 1 || text[1] != '\n' {
				out = append(out, '\n')
			}
		case r == '\n' || r == '\t':
			out = append(out, byte(r))
		case r < ' ' || r == 0x7f:
			out = append(out, '^', byte(r)^0x40)
		case r >= 0x80 && r < 0xa0:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:n]...)
		}
		text = text[n:]
	}
	v.rest = append([]byte(nil), text...)
	_, err := v.to.Write(out)
	return err
}
