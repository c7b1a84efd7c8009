package artefact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// File is a sparse file that pages are read from.
type File interface {
	io.ReaderAt
	Fd() uintptr
}

// batch is how many frames are compressed side by side.
const batch = 16

// WritePages writes the pages of a file as frames, one after the other, and returns their
// index. The same pages give the same bytes.
func WritePages(ctx context.Context, w io.Writer, f File, size int64) (*Index, error) {
	enc, err := newEncoder()
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	p := &pageWriter{w: w, enc: enc, index: Index{Size: size}}
	for i := range p.pending {
		p.pending[i].buf = make([]byte, FrameBytes)
	}
	for at := int64(0); at < size; at += FrameBytes {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= size {
			break // a hole up to the end
		}
		if err == nil && data > at { // else the file system has no holes
			at = data / FrameBytes * FrameBytes
		}
		if err := p.add(f, at); err != nil {
			return nil, err
		}
	}
	return &p.index, p.flush()
}

// newEncoder returns the encoder of all blobs. Its frames state their length, and have no
// sum of their own: digests are compared.
func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderCRC(false),
		zstd.WithSingleSegment(true), zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)))
}

type pageWriter struct {
	w       io.Writer
	enc     *zstd.Encoder
	index   Index
	offset  int64
	pending [batch]pendingFrame
	n       int
}

type pendingFrame struct {
	buf    []byte
	place  int64
	data   []byte // of buf
	out    []byte
	digest [sha256.Size]byte
}

var zeros [FrameBytes]byte

// add reads the stretch at a place, and leaves it out if it is zero.
func (p *pageWriter) add(f File, at int64) error {
	q := &p.pending[p.n]
	q.place, q.data = at, q.buf[:min(FrameBytes, p.index.Size-at)]
	n, err := f.ReadAt(q.data, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	clear(q.data[n:])
	if bytes.Equal(q.data, zeros[:len(q.data)]) {
		return nil
	}
	if p.n++; p.n == batch {
		return p.flush()
	}
	return nil
}

// flush compresses what is pending, and writes it.
func (p *pageWriter) flush() error {
	var workers sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range p.n {
		turns <- struct{}{}
		workers.Go(func() {
			defer func() { <-turns }()
			q := &p.pending[i]
			q.digest = sha256.Sum256(q.data)
			q.out = p.enc.EncodeAll(q.data, q.out[:0])
		})
	}
	workers.Wait()
	for i := range p.n {
		q := &p.pending[i]
		if _, err := p.w.Write(q.out); err != nil {
			return err
		}
		p.index.Frames = append(p.index.Frames, Frame{Place: q.place, Offset: p.offset, Length: len(q.out), Digest: q.digest})
		p.offset += int64(len(q.out))
	}
	p.n = 0
	return nil
}

// ReadPages reads the frames of a part and calls fn for each, in order, with contents that
// match the digest. fn must not keep data.
func ReadPages(ctx context.Context, r io.Reader, x *Index, fn func(place int64, data []byte) error) error {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(FrameBytes), zstd.WithDecoderMaxWindow(FrameBytes), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer dec.Close()
	in, out := make([]byte, maxFrame), make([]byte, 0, FrameBytes)
	for i := range x.Frames {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f := &x.Frames[i]
		if _, err := io.ReadFull(r, in[:f.Length]); err != nil {
			return short(err)
		}
		data, err := dec.DecodeAll(in[:f.Length], out[:0])
		if err != nil || int64(len(data)) != x.length(f) || sha256.Sum256(data) != f.Digest {
			return corrupt("frame %d of the snapshot does not match its digest", i)
		}
		if err := fn(f.Place, data); err != nil {
			return err
		}
	}
	if n, err := io.ReadFull(r, in[:1]); n > 0 || !errors.Is(err, io.EOF) {
		if err != nil && n == 0 {
			return err
		}
		return corrupt("a part of the snapshot has data after its last frame")
	}
	return nil
}

// short gives the end of a blob before its time a code.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt("a blob of the snapshot is cut off")
	}
	return err
}

// PagesReader returns the whole of a part, with zeros in its holes, as a stream.
func PagesReader(ctx context.Context, r io.Reader, x *Index) io.ReadCloser {
	out, w := io.Pipe()
	go func() {
		at := int64(0)
		fill := func(to int64) error {
			for at < to {
				n, err := w.Write(zeros[:min(to-at, FrameBytes)])
				at += int64(n)
				if err != nil {
					return err
				}
			}
			return nil
		}
		err := ReadPages(ctx, r, x, func(place int64, data []byte) error {
			if err := fill(place); err != nil {
				return err
			}
			n, err := w.Write(data)
			at += int64(n)
			return err
		})
		if err == nil {
			err = fill(x.Size)
		}
		w.CloseWithError(err)
	}()
	return out
}

// WriteStream compresses a stream as one frame after the other of FrameBytes each, of which
// the decompressed length is not known before.
func WriteStream(ctx context.Context, w io.Writer, r io.Reader) error {
	enc, err := newEncoder()
	if err != nil {
		return err
	}
	defer enc.Close()
	buf, out := make([]byte, 16*FrameBytes), []byte(nil)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			out = enc.EncodeAll(buf[:n], out[:0])
			if _, err := w.Write(out); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// maxStreamWindow bounds the memory of the decoder of a stream.
const maxStreamWindow = 16 << 20

// ReadStream copies what WriteStream has compressed to w. It ends with an error unless that
// is what c says.
func ReadStream(ctx context.Context, w io.Writer, r io.Reader, c Content) error {
	source := &reader{ctx: ctx, r: r}
	dec, err := zstd.NewReader(source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxStreamWindow), zstd.WithDecoderMaxWindow(maxStreamWindow))
	if err != nil {
		return err
	}
	defer dec.Close()
	hash, sink := sha256.New(), &writer{w: w}
	n, err := io.Copy(io.MultiWriter(sink, hash), io.LimitReader(dec, c.Size+1))
	switch {
	case sink.err != nil:
		return sink.err
	case source.err != nil:
		return source.err
	case err != nil || n != c.Size || digestOf(hash.Sum(nil)) != c.Digest:
		return corrupt("a blob of the snapshot does not match its digest")
	}
	return nil
}

// reader ends with a context. It keeps its error, to tell it from that of a decoder.
type reader struct {
	ctx context.Context
	r   io.Reader
	err error
}

func (r *reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		r.err = context.Cause(r.ctx)
		return 0, r.err
	}
	n, err := r.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// writer keeps its error.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}
