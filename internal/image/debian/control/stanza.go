package control

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"ramet.dev/ramet/internal/image/debian/fault"
)

// Bounds on one stanza of control data. The largest stanzas in use are those of
// linux packages with long Provides, well below 1 MiB.
const (
	maxStanza = 8 << 20
	maxFields = 512
)

// Stanza is one paragraph of control data: "Name: value" lines, where lines
// that begin with a space continue the value.
type Stanza struct {
	Raw    []byte
	Fields []Field
}

// Field points into Stanza.Raw. Value runs to the end of the last continuation
// line, without the final newline.
type Field struct{ Name, Value []byte }

// Get returns the value of the named field, "" if there is none. Names are
// compared without regard to case, as dpkg does.
func (s *Stanza) Get(name string) string {
	for _, f := range s.Fields {
		if len(f.Name) == len(name) && bytes.EqualFold(f.Name, []byte(name)) {
			return string(bytes.TrimSpace(f.Value))
		}
	}
	return ""
}

// Reader cuts a stream into stanzas.
type Reader struct {
	what string
	in   *bufio.Reader
	// Comments makes lines that begin with # vanish, as in deb822 source files.
	Comments bool
	st       Stanza
}

func NewReader(what string, r io.Reader) *Reader {
	return &Reader{what: what, in: bufio.NewReaderSize(r, 256<<10)}
}

// Next returns the next stanza, which is valid until the following call, or
// io.EOF.
func (r *Reader) Next() (*Stanza, error) {
	raw := r.st.Raw[:0]
	for {
		start := len(raw)
		var err error
		raw, err = r.appendLine(raw)
		line := raw[start:]
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case r.Comments && bytes.HasPrefix(line, []byte("#")):
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
func (r *Reader) appendLine(buf []byte) ([]byte, error) {
	for {
		part, err := r.in.ReadSlice('\n')
		if len(buf)+len(part) > maxStanza {
			return buf, &fault.LimitError{What: "stanza in " + r.what, Limit: maxStanza}
		}
		buf = append(buf, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return buf, err
		}
	}
}

func (r *Reader) parse(raw []byte) (*Stanza, error) {
	r.st.Raw, r.st.Fields = raw, r.st.Fields[:0]
	for rest := raw; len(rest) > 0; {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line = rest[:i]
		}
		rest = rest[min(len(line)+1, len(rest)):]
		if line[0] == ' ' || line[0] == '\t' {
			if len(r.st.Fields) == 0 {
				return nil, fault.Malformed(r.what, "continuation line before the first field")
			}
			f := &r.st.Fields[len(r.st.Fields)-1]
			// The lines are adjacent in raw, so growing the slice joins them.
			f.Value = f.Value[:len(f.Value)+1+len(line)]
			continue
		}
		i := bytes.IndexByte(line, ':')
		if i <= 0 || bytes.ContainsAny(line[:i], " \t") {
			return nil, fault.Malformed(r.what, "line without a field name: %.80q", line)
		}
		if len(r.st.Fields) == maxFields {
			return nil, &fault.LimitError{What: "number of fields in " + r.what, Limit: maxFields}
		}
		r.st.Fields = append(r.st.Fields, Field{Name: line[:i], Value: line[i+1:]})
	}
	return &r.st, nil
}

// Parse reads the single stanza that data must hold.
func Parse(what string, data []byte) (*Stanza, error) {
	r := NewReader(what, bytes.NewReader(data))
	st, err := r.Next()
	if errors.Is(err, io.EOF) {
		return nil, fault.Malformed(what, "is empty")
	}
	return st, err
}

// ValidName implements Debian policy 5.6.7, so that a name may be part
// of a path and of a shell word.
func ValidName(s string) bool {
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

// ValidVersion accepts the characters of Debian policy 5.6.12 only.
func ValidVersion(s string) bool {
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
