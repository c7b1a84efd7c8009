package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

const (
	// minMask is the length below which a text is not masked.
	minMask = 8
	// maskChunk is how much of a body is read at once.
	maskChunk = 32 << 10
)

// mask is a text that must not reach the guest.
type mask struct {
	text []byte
	// header is what replaces it in headers. In bodies stars do, as many as it has bytes:
	// lengths, ranges and frames stay what they are.
	header string
	// slack is how much of its beginning may pass before the rest is seen. Without it a
	// message would wait for the next one whenever it ends with the first letter of a
	// secret, and a client that answers messages would wait with it.
	slack int
}

func newMask(text string) mask {
	return mask{text: []byte(text), header: strings.Repeat("*", len(text)), slack: min(7, len(text)/4)}
}

// maskHeader replaces the texts in all values of a header.
func maskHeader(h http.Header, masks []mask) {
	for name, values := range h {
		for i, v := range values {
			h[name][i] = maskText(v, masks)
		}
	}
}

// maskText replaces the texts in one.
func maskText(s string, masks []mask) string {
	for _, m := range masks {
		s = strings.ReplaceAll(s, string(m.text), m.header)
	}
	return s
}

// maskBody makes the body and the trailers of an answer pass with stars in place of texts.
// A body that is encoded stays as it is.
func maskBody(res *http.Response, masks []mask) {
	if len(masks) == 0 || res.Body == nil || res.Body == http.NoBody || res.StatusCode == http.StatusSwitchingProtocols {
		return
	}
	m := &maskReader{body: res.Body, masks: masks, done: func() { maskHeader(res.Trailer, masks) }}
	if e := res.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		m.masks = nil
	}
	for _, mask := range m.masks {
		m.longest = max(m.longest, len(mask.text))
	}
	res.Body = m
}

// maskReader is a body. It hands out what it reads but for the longest end of it that may
// be the beginning of a text.
type maskReader struct {
	body    io.ReadCloser
	masks   []mask
	longest int    // of the texts
	done    func() // called when the body has ended

	// raw is what was read: first what was handed out and may be the beginning of a text,
	// up to passed, then what was not handed out.
	raw    []byte
	passed int
	out    []byte // masked, to be handed out
	err    error  // of the body, once all of raw is in out

	chunk, masked []byte // reused: out is empty whenever they are filled
}

// Read implements io.Reader.
func (m *maskReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(m.out) == 0 {
		if m.err != nil {
			return 0, m.err
		}
		m.fill()
	}
	n := copy(p, m.out)
	m.out = m.out[n:]
	return n, nil
}

// fill reads once and moves what can be told into out.
func (m *maskReader) fill() {
	if m.chunk == nil {
		m.chunk = make([]byte, maskChunk)
	}
	n, err := m.body.Read(m.chunk)
	if errors.Is(err, io.EOF) {
		m.done()
	}
	m.err = err
	if len(m.masks) == 0 {
		m.out = m.chunk[:n]
		return
	}
	m.raw = append(m.raw, m.chunk[:n]...)
	m.masked = append(m.masked[:0], m.raw...)
	held := 0
	for _, mask := range m.masks {
		for at := 0; ; {
			i := bytes.Index(m.raw[at:], mask.text)
			if i < 0 {
				break
			}
			at += i
			for j := range mask.text {
				m.masked[at+j] = '*'
			}
			at += len(mask.text)
		}
		if err == nil {
			held = max(held, mask.begun(m.raw))
		}
	}
	// What was handed out stays so, even if it is the beginning of a text as well.
	end := max(m.passed, len(m.raw)-held)
	m.out = m.masked[m.passed:end]
	keep := min(end, m.longest-1)
	m.raw = append(m.raw[:0], m.raw[end-keep:]...)
	m.passed = keep
}

// begun returns how much of the end of b is the beginning of the text, and more of it than
// may pass.
func (m *mask) begun(b []byte) int {
	for n := min(len(m.text)-1, len(b)); n > m.slack; n-- {
		if bytes.HasSuffix(b, m.text[:n]) {
			return n
		}
	}
	return 0
}

// Close implements io.Closer.
func (m *maskReader) Close() error { return m.body.Close() }
