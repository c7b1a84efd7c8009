package debian

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// Bounds on one stanza of control data. The largest stanzas in use are those of
// linux packages with long Provides, well below 1 MiB.
const (
	maxStanza = 8 << 20
	maxFields = 512
)

// stanza is one paragraph of control data: "Name: value" lines, where lines
// that begin with a space continue the value.
type stanza struct {
	raw    []byte
	fields []field
}

// field points into stanza.raw. value runs to the end of the last continuation
// line, without the final newline.
type field struct{ name, value []byte }

// get returns the value of the named field, "" if there is none. Names are
// compared without regard to case, as dpkg does.
func (s *stanza) get(name string) string {
	for _, f := range s.fields {
		if len(f.name) == len(name) && bytes.EqualFold(f.name, []byte(name)) {
			return string(bytes.TrimSpace(f.value))
		}
	}
	return ""
}

// stanzaReader cuts a stream into stanzas.
type stanzaReader struct {
	what string
	in   *bufio.Reader
	// comments makes lines that begin with # vanish, as in deb822 source files.
	comments bool
	st       stanza
}

func newStanzaReader(what string, r io.Reader) *stanzaReader {
	return &stanzaReader{what: what, in: bufio.NewReaderSize(r, 256<<10)}
}

// next returns the next stanza, which is valid until the following call, or
// io.EOF.
func (r *stanzaReader) next() (*stanza, error) {
	raw := r.st.raw[:0]
	for {
		start := len(raw)
		var err error
		raw, err = r.appendLine(raw)
		line := raw[start:]
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case r.comments && bytes.HasPrefix(line, []byte("#")):
			raw = raw[:start]
		case len(bytes.TrimSpace(line)) == 0:
			raw = raw[:start]
			if start == 0 && err == nil {
				continue
			}
			if start > 0 {
				return r.parse(raw)
			}
			return nil, io.EOF
		}
		if err != nil {
			if len(raw) == 0 {
				return nil, io.EOF
			}
			return r.parse(raw)
		}
	}
}

// appendLine appends one line with its newline to buf.
func (r *stanzaReader) appendLine(buf []byte) ([]byte, error) {
	for {
		part, err := r.in.ReadSlice('\n')
		if len(buf)+len(part) > maxStanza {
			return buf, &LimitError{What: "stanza in " + r.what, Limit: maxStanza}
		}
		buf = append(buf, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return buf, err
		}
	}
}

func (r *stanzaReader) parse(raw []byte) (*stanza, error) {
	r.st.raw, r.st.fields = raw, r.st.fields[:0]
	for rest := raw; len(rest) > 0; {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line = rest[:i]
		}
		rest = rest[min(len(line)+1, len(rest)):]
		if line[0] == ' ' || line[0] == '\t' {
			if len(r.st.fields) == 0 {
				return nil, malformed(r.what, "continuation line before the first field")
			}
			f := &r.st.fields[len(r.st.fields)-1]
			// The lines are adjacent in raw, so growing the slice joins them.
			f.value = f.value[:len(f.value)+1+len(line)]
			continue
		}
		i := bytes.IndexByte(line, ':')
		if i <= 0 || bytes.ContainsAny(line[:i], " \t") {
			return nil, malformed(r.what, "line without a field name: %.80q", line)
		}
		if len(r.st.fields) == maxFields {
			return nil, &LimitError{What: "number of fields in " + r.what, Limit: maxFields}
		}
		r.st.fields = append(r.st.fields, field{name: line[:i], value: line[i+1:]})
	}
	return &r.st, nil
}

// parseStanza reads the single stanza that data must hold.
func parseStanza(what string, data []byte) (*stanza, error) {
	r := newStanzaReader(what, bytes.NewReader(data))
	st, err := r.next()
	if errors.Is(err, io.EOF) {
		return nil, malformed(what, "is empty")
	}
	return st, err
}

// validPackageName implements Debian policy 5.6.7, so that a name may be part
// of a path and of a shell word.
func validPackageName(s string) bool {
	if len(s) < 2 || len(s) > 200 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || isDigit(c)
		if !alnum && (i == 0 || strings.IndexByte("+-.", c) < 0) {
			return false
		}
	}
	return true
}

// validVersion accepts the characters of Debian policy 5.6.12 only.
func validVersion(s string) bool {
	if s == "" || len(s) > 500 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !isLetter(s[i]) && !isDigit(s[i]) && strings.IndexByte(".+-~:", s[i]) < 0 {
			return false
		}
	}
	return true
}
