package bounded

import (
	"context"
	"errors"
	"io"
	"os"

	"ramet.dev/ramet/internal/image/debian/fault"
)

// maxFile bounds each configuration file of the host that ReadFile reads.
const maxFile = 1 << 20

// ReadAll reads all of r, or fails if it holds more than limit bytes.
func ReadAll(what string, r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &fault.LimitError{What: what, Limit: limit}
	}
	return data, nil
}

// ReadFile reads a file of at most maxFile bytes.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(path, f, maxFile)
}

// reader fails, rather than ends, when more than limit bytes come.
type reader struct {
	r           io.Reader
	what        string
	left, limit int64
}

// NewReader returns a reader of r that fails with a LimitError when more than limit
// bytes come, and with the error of ctx when that has ended.
func NewReader(ctx context.Context, what string, r io.Reader, limit int64) io.Reader {
	return &reader{r: WithContext(ctx, r), what: what, left: limit, limit: limit}
}

func (b *reader) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.r.Read(p)
	if int64(n) > b.left {
		return int(b.left), &fault.LimitError{What: b.what, Limit: b.limit}
	}
	b.left -= int64(n)
	return n, err
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// WithContext returns a reader of r that ends a long copy when ctx ends.
func WithContext(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

func (r *contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// ContentError turns a decoder's complaint about the data into a MalformedError. Errors
// of package fault, of the file system and of a context stay as they are.
func ContentError(what string, err error) error {
	var limit *fault.LimitError
	var bad *fault.MalformedError
	var sys *os.PathError
	switch {
	case errors.As(err, &limit), errors.As(err, &bad), errors.As(err, &sys),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return fault.Malformed(what, "cannot be read: %v", err)
}
