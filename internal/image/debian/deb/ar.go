package deb

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"ramet.dev/ramet/internal/image/debian/fault"
)

const (
	arMagic     = "!<arch>\n"
	arHeaderLen = 60
)

// arReader reads the members of a Unix ar archive in their order. deb(5) allows
// only the plain form: names of up to 15 characters, no symbol or name table.
type arReader struct {
	what string
	in   io.Reader
	left int64 // bytes of the current member not yet read
	odd  bool  // the current member is followed by a padding byte
}

func newArReader(what string, in io.Reader) (*arReader, error) {
	magic := make([]byte, len(arMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != arMagic {
		return nil, fault.Malformed(what, "is not an ar archive")
	}
	return &arReader{what: what, in: in}, nil
}

// next skips what is left of the current member and returns the name and size
// of the one after it, or io.EOF.
func (r *arReader) next() (name string, size int64, err error) {
	skip := r.left
	if r.odd {
		skip++
	}
	n, err := io.CopyN(io.Discard, r.in, skip)
	// The last padding byte is missing in some archives.
	if err != nil && !(errors.Is(err, io.EOF) && n >= r.left) {
		return "", 0, r.readError(err)
	}
	r.left, r.odd = 0, false
	var h [arHeaderLen]byte
	switch _, err := io.ReadFull(r.in, h[:]); {
	case errors.Is(err, io.EOF):
		return "", 0, io.EOF
	case err != nil:
		return "", 0, r.readError(err)
	}
	if h[58] != '`' || h[59] != '\n' {
		return "", 0, fault.Malformed(r.what, "bad ar header")
	}
	name = strings.TrimSuffix(strings.TrimRight(string(h[:16]), " "), "/")
	size, err = strconv.ParseInt(strings.TrimRight(string(h[48:58]), " "), 10, 64)
	if err != nil || size < 0 || name == "" {
		return "", 0, fault.Malformed(r.what, "bad ar header of member %.20q", name)
	}
	r.left, r.odd = size, size%2 == 1
	return name, size, nil
}

// Read reads from the current member.
func (r *arReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	n, err := r.in.Read(p)
	r.left -= int64(n)
	if err != nil && (r.left > 0 || !errors.Is(err, io.EOF)) {
		return n, r.readError(err)
	}
	return n, nil
}

func (r *arReader) readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.Malformed(r.what, "ends in the middle of a member")
	}
	return err
}
