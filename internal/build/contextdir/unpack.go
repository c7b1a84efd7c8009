package contextdir

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"

	"ramet.dev/ramet/api"
)

const (
	// maxUnpacked bounds an archive without its compression, in bytes.
	maxUnpacked = 64 << 30
	// maxWindow bounds the memory of a decoder, in bytes.
	maxWindow = 256 << 20
	// tarBlock is the length of a header.
	tarBlock = 512
)

// Unpack returns an archive without its compression, or nil if the file is no archive.
func Unpack(from io.Reader) (io.ReadCloser, error) {
	raw := bufio.NewReaderSize(from, 64<<10)
	magic, err := raw.Peek(6)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var plain io.Reader = raw
	end := func() {}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err = gzip.NewReader(raw)
	case bytes.HasPrefix(magic, []byte("BZh")):
		plain, err = bzip2.NewReader(raw), nil
	case bytes.HasPrefix(magic, []byte("\xfd7zXZ\x00")):
		plain, err = xz.NewReader(raw, maxWindow)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		var d *zstd.Decoder
		if d, err = zstd.NewReader(raw, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1)); err == nil {
			plain, end = d, d.Close
		}
	default:
		err = nil
	}
	if err != nil {
		return nil, nil // it only begins as an archive does
	}
	in := bufio.NewReaderSize(&bounded{r: plain}, 64<<10)
	first, _ := in.Peek(tarBlock) // too short is no archive
	if _, err := tar.NewReader(bytes.NewReader(first)).Next(); len(first) < tarBlock || err != nil && err != io.ErrUnexpectedEOF {
		end()
		return nil, nil
	}
	return &unpacked{in, end}, nil
}

type unpacked struct {
	io.Reader
	end func()
}

// Close ends the decoder; the file stays the caller's.
func (u *unpacked) Close() error {
	u.end()
	return nil
}

// bounded fails when too much was read.
type bounded struct {
	r io.Reader
	n int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.n += int64(n); b.n > maxUnpacked {
		return 0, api.Errorf(api.CodeHostile, "the archive expands to more than %d GiB", maxUnpacked>>30)
	}
	return n, err
}
