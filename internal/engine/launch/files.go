package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// window is how much of a file is asked for at a time, in bytes. Two windows are
// under way, so that the sentry never waits for the next request.
const window = 1 << 20

// FileStream makes a call about files that is answered in pieces, and gives
// them to each in order. The body is valid until each returns.
func (s *Sentry) FileStream(ctx context.Context, req *wire.File, each func(wire.Type, []byte) error, out any) error {
	call := &wire.Call{Op: wire.OpFile, File: req}
	c, done, err := s.open(ctx, call)
	if err != nil {
		return err
	}
	defer done()
	for {
		p, err := c.Receive()
		if err != nil {
			return s.callError(ctx, call, err)
		}
		p.Close()
		if p.Type != wire.TypeItem && p.Type != wire.TypeData {
			return p.Decode(out)
		}
		if err := each(p.Type, p.Body); err != nil {
			return err
		}
	}
}

// FileSend makes a call about files that takes data, and gives it all of from.
// If reading from fails, the sandbox is told that the data is not complete.
func (s *Sentry) FileSend(ctx context.Context, req *wire.File, from io.Reader, out any) error {
	call := &wire.Call{Op: wire.OpFile, File: req}
	c, done, err := s.open(ctx, call)
	if err != nil {
		return err
	}
	defer done()
	buf := make([]byte, wire.MaxChunk)
	for {
		n, rerr := from.Read(buf)
		if n > 0 {
			if err := c.Send(wire.TypeData, buf[:n]); err != nil {
				break // the sentry has said why
			}
		}
		if rerr == io.EOF {
			_ = c.Send(wire.TypeData, nil) // likewise
			break
		}
		if rerr != nil {
			return fmt.Errorf("read data: %w", rerr)
		}
	}
	p, err := c.Receive()
	if errors.Is(err, unix.ECONNRESET) { // the sentry stopped reading; its answer comes behind the error
		p, err = c.Receive()
	}
	if err != nil {
		return s.callError(ctx, call, err)
	}
	p.Close()
	return p.Decode(out)
}

// File is an open file of the sandbox. It is used by one goroutine.
type File struct {
	Info   api.FileInfo
	sentry *Sentry
	ctx    context.Context
	call   *wire.Call
	c      *wire.Conn
	done   func()
	pos    int64  // of the next Read
	rest   []byte // what was received and not yet read
	asked  int64  // where the next window begins
	open   int    // windows that have not ended
}

// OpenFile opens a file until ctx ends or it is closed.
func (s *Sentry) OpenFile(ctx context.Context, req *wire.File) (*File, error) {
	f := &File{sentry: s, ctx: ctx, call: &wire.Call{Op: wire.OpFile, File: req}}
	var err error
	if f.c, f.done, err = s.open(ctx, f.call); err != nil {
		return nil, err
	}
	p, err := f.c.Receive()
	if err != nil {
		err = s.callError(ctx, f.call, err)
	} else {
		p.Close()
		err = p.Decode(&f.Info)
	}
	if err != nil {
		f.done()
		return nil, err
	}
	return f, nil
}

// Close ends reading.
func (f *File) Close() error {
	f.done()
	return nil
}

// Seek implements io.Seeker. The end is that of the file when it was opened.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.pos
	case io.SeekEnd:
		offset += f.Info.Size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek to %d", offset)
	}
	if offset != f.pos {
		for f.open > 0 {
			if err := f.receive(); err != nil && err != io.EOF {
				return 0, err
			}
		}
		f.pos, f.asked, f.rest = offset, offset, nil
	}
	return offset, nil
}

// Read implements io.Reader.
func (f *File) Read(buf []byte) (int, error) {
	for len(f.rest) == 0 {
		if f.pos >= f.Info.Size {
			return 0, io.EOF
		}
		for f.open < 2 && f.asked < f.Info.Size {
			want, err := json.Marshal(wire.Range{Offset: f.asked, Length: min(window, f.Info.Size-f.asked)})
			if err != nil {
				return 0, err
			}
			if err := f.c.Send(wire.TypeRange, want); err != nil {
				return 0, f.sentry.callError(f.ctx, f.call, err)
			}
			f.asked = min(f.asked+window, f.Info.Size)
			f.open++
		}
		if f.open == 0 {
			return 0, io.ErrUnexpectedEOF // the file has become shorter
		}
		if err := f.receive(); err != nil {
			return 0, err
		}
	}
	n := copy(buf, f.rest)
	f.rest = f.rest[n:]
	f.pos += int64(n)
	return n, nil
}

// receive receives one packet of a window.
func (f *File) receive() error {
	p, err := f.c.Receive()
	if err != nil {
		return f.sentry.callError(f.ctx, f.call, err)
	}
	p.Close()
	if p.Type != wire.TypeData {
		if err := p.Decode(&struct{}{}); err != nil {
			return err
		}
		return io.ErrUnexpectedEOF
	}
	if f.rest = p.Body; len(p.Body) == 0 {
		f.open--
	}
	return nil
}
