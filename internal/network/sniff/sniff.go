package sniff

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Kind says what the first bytes are.
type Kind int

// The kinds.
const (
	// Unknown is neither of the others: the bytes say no name.
	Unknown Kind = iota
	// TLS is the beginning of a handshake.
	TLS
	// HTTP is a request of HTTP/1.
	HTTP
)

// Found is what the first bytes say.
type Found struct {
	Kind Kind
	// Name is in lower case and without a port; empty if the client named none.
	Name string
	// Hidden says that the client may have another name encrypted (ECH): the server decides
	// by that one.
	Hidden bool
}

// MaxBytes is how many bytes Parse wants at most: as many as a record of TLS.
const MaxBytes = 16<<10 + 5

var (
	// ErrMore says that the bytes are a beginning of something that Parse knows.
	ErrMore = errors.New("the first bytes are not complete")
	// ErrMalformed says that the bytes are an invalid handshake or request.
	ErrMalformed = errors.New("the first bytes are neither a handshake of TLS nor a request of HTTP")
)

// Parse looks at the first bytes of a client. More than MaxBytes without a name are malformed.
func Parse(b []byte) (Found, error) {
	if len(b) == 0 {
		return Found{}, ErrMore
	}
	var f Found
	var err error
	first := bytes.TrimLeft(b, "\r\n") // servers of HTTP pass over empty lines
	switch {
	case len(first) == 0:
		f, err = Found{Kind: HTTP}, ErrMore
	case b[0] == 0x16: // a record of the handshake
		f, err = parseTLS(b)
	case ofMethod(first[0]):
		f, err = parseHTTP(first)
		if err == nil && f.Kind == HTTP && len(first) < len(b) {
			err = ErrMalformed
		}
	}
	if errors.Is(err, ErrMore) && len(b) >= MaxBytes {
		err = ErrMalformed
	}
	return f, err
}

// reader is a connection of which only the first bytes have come.
type reader struct {
	r     *bytes.Reader
	short bool // it was read beyond them
}

func (r *reader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.short = r.short || err != nil
	return n, err
}

func (*reader) Write(b []byte) (int, error)      { return len(b), nil }
func (*reader) Close() error                     { return nil }
func (*reader) LocalAddr() net.Addr              { return nil }
func (*reader) RemoteAddr() net.Addr             { return nil }
func (*reader) SetDeadline(time.Time) error      { return nil }
func (*reader) SetReadDeadline(time.Time) error  { return nil }
func (*reader) SetWriteDeadline(time.Time) error { return nil }

var errSeen = errors.New("seen")

// encryptedClientHello is the number of the extension (RFC 9849).
const encryptedClientHello = 0xfe0d

// parseTLS has the handshake of package tls parse the ClientHello and end there.
func parseTLS(b []byte) (Found, error) {
	f, seen := Found{Kind: TLS}, false
	r := &reader{r: bytes.NewReader(b)}
	_ = tls.Server(r, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		seen = true
		f.Name = strings.ToLower(hello.ServerName)
		f.Hidden = slices.Contains(hello.Extensions, encryptedClientHello)
		return nil, errSeen
	}}).Handshake() // the error is errSeen, or that of the bytes
	switch {
	case seen:
		return f, nil
	case r.short:
		return f, ErrMore
	}
	return f, ErrMalformed
}

// parseHTTP reads the head of a request. A request to a proxy names two hosts, and a server
// may believe either: it is malformed.
func parseHTTP(b []byte) (Found, error) {
	f := Found{Kind: HTTP}
	head, complete, proper := cutHead(b)
	line, fields, more := bytes.Cut(head, []byte("\n"))
	// Other protocols of text begin with a word, too.
	if !mayBeRequest(line, complete || more) {
		return Found{}, nil
	}
	if !complete {
		return f, ErrMore
	}
	// A line feed alone ends a line for some servers and not for others.
	if !proper || bytes.Count(head, []byte("\n")) != bytes.Count(head, []byte("\r\n")) || !validFields(fields) {
		return f, ErrMalformed
	}
	req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(head), strings.NewReader("\r\n\r\n"))))
	if err != nil || req.URL.Host != "" || req.Method == http.MethodConnect {
		return f, ErrMalformed
	}
	if req.Method == "PRI" {
		return Found{}, nil // HTTP/2 without TLS, whose requests show their names later
	}
	f.Name = strings.ToLower(req.Host)
	if host, _, err := net.SplitHostPort(f.Name); err == nil {
		f.Name = host
	}
	return f, nil
}

// ofMethod reports whether a method has a byte: servers know none with small letters.
func ofMethod(c byte) bool {
	return 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// cutHead returns the head of a request, up to the empty line that ends it for any server: some take a line feed alone
// for the end of a line.
func cutHead(b []byte) (head []byte, complete, proper bool) {
	end := -1
	for i, empty := range []string{"\r\n\r\n", "\n\n", "\n\r\n"} {
		if at := bytes.Index(b, []byte(empty)); at >= 0 && (end < 0 || at < end) {
			end, proper = at, i == 0
		}
	}
	if end < 0 {
		return b, false, false
	}
	return b[:end], true, proper
}

// mayBeRequest reports whether a line, or the beginning of one, may be a request for some server: a method, a target
// and a version between spaces of any kind.
func mayBeRequest(line []byte, whole bool) bool {
	words := bytes.Fields(line)
	if whole {
		return len(words) > 1 && bytes.HasPrefix(bytes.ToUpper(words[len(words)-1]), []byte("HTTP/"))
	}
	for i, c := range line {
		if c < ' ' && !bytes.ContainsRune([]byte("\t\r\v\f"), rune(c)) || c == 0x7f || i < len(words[0]) && !ofMethod(c) {
			return false
		}
	}
	return true
}

// validFields reports whether all lines begin with a name and a colon. Servers differ in what they
// make of a name that a space follows, and of lines that go on.
func validFields(fields []byte) bool {
	for line := range bytes.SplitSeq(fields, []byte("\r\n")) {
		if len(line) == 0 {
			continue // there are no fields
		}
		name, _, found := bytes.Cut(line, []byte(":"))
		if !found || !httpguts.ValidHeaderFieldName(string(name)) {
			return false
		}
	}
	return true
}
