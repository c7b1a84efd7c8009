package console

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"ramet.dev/ramet/api"
)

// DefaultDetachKeys are those of docker.
const DefaultDetachKeys = "ctrl-p,ctrl-q"

var ErrDetached = errors.New("detached")

// terminalInput is the input from a terminal in raw mode. The keys of an end of file are passed on
// in raw mode, so an end means that the terminal was closed.
type terminalInput struct{ in io.Reader }

var errTerminalClosed = errors.New("the terminal was closed")

// Read implements io.Reader.
func (t terminalInput) Read(p []byte) (int, error) {
	n, err := t.in.Read(p)
	if err == io.EOF {
		err = errTerminalClosed
	}
	return n, err
}

// ParseDetachKeys returns the bytes of keys such as "ctrl-p,ctrl-q" or "a,b".
func ParseDetachKeys(text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	var keys []byte
	for _, key := range strings.Split(text, ",") {
		name, ctrl := strings.CutPrefix(key, "ctrl-")
		switch {
		case len(name) != 1 || name[0] > 0x7e || name[0] <= ' ':
			return nil, api.Invalid("detach-keys", "%q is neither a key nor ctrl- and a key", key)
		case !ctrl:
			keys = append(keys, name[0])
		case strings.Contains("abcdefghijklmnopqrstuvwxyz@[\\]^_", name):
			keys = append(keys, strings.ToUpper(name)[0]&0x1f)
		default:
			return nil, api.Invalid("detach-keys", "there is no %q: ctrl- goes with a to z, @, [, \\, ], ^ and _", key)
		}
	}
	return keys, nil
}

// detachReader ends with ErrDetached after keys. A prefix of keys is held back until the next byte
// is read.
type detachReader struct {
	in   io.Reader
	keys []byte
	held []byte // read last, and the beginning of keys
	over bool
}

// NewDetachReader returns a reader of in, a terminal in raw mode. It ends with ErrDetached after
// keys, and with errTerminalClosed at the end of in.
func NewDetachReader(in io.Reader, keys []byte) io.Reader {
	return &detachReader{in: terminalInput{in}, keys: keys}
}

// Read implements io.Reader.
func (d *detachReader) Read(p []byte) (int, error) {
	if d.over {
		return 0, ErrDetached
	}
	if len(d.keys) == 0 {
		return d.in.Read(p)
	}
	buf := make([]byte, max(1, len(p)-len(d.keys)))
	n, err := d.in.Read(buf)
	out := p[:0]
	for _, b := range buf[:n] {
		d.held = append(d.held, b)
		for !bytes.HasPrefix(d.keys, d.held) {
			out = append(out, d.held[0])
			d.held = d.held[1:]
		}
		if len(d.held) == len(d.keys) {
			d.over = true
			return len(out), nil
		}
	}
	if err != nil {
		out = append(out, d.held...)
		d.held = nil
	}
	return len(out), err
}
