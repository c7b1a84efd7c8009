package image

import (
	"bufio"
	"bytes"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"

	"ramet.dev/ramet/api"
)

const readAhead = 256 << 10

// stream is an archive without its compression.
type stream struct {
	*bufio.Reader
	compressed bool
	close      func()
}

// decompress recognises the compression of input by its first bytes. The caller
// closes the stream; input stays the caller's.
func decompress(input *countReader, limits Limits) (*stream, error) {
	raw := bufio.NewReaderSize(input, readAhead)
	magic, err := raw.Peek(6)
	if err != nil && err != io.EOF {
		return nil, readError(err)
	}
	s := &stream{compressed: true, close: func() {}}
	var plain io.Reader
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		plain, err = gzip.NewReader(raw)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		var d *zstd.Decoder
		// Without concurrency it reads in the caller's goroutine only, which input
		// relies on.
		if d, err = zstd.NewReader(raw, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1)); err == nil {
			plain, s.close = d, d.Close
		}
	case bytes.HasPrefix(magic, []byte("\xfd7zXZ\x00")):
		plain, err = xz.NewReader(raw, maxWindow)
	case bytes.HasPrefix(magic, []byte("BZh")):
		return nil, api.Errorf(api.CodeUnsupported, "archive is compressed with bzip2: only gzip, zstd and xz are supported")
	default:
		plain, err, s.compressed = raw, nil, false
	}
	if err != nil {
		return nil, readError(err)
	}
	s.Reader = bufio.NewReaderSize(&expandReader{r: plain, input: input, limits: limits}, readAhead)
	return s, nil
}

// drain reads to the end of the stream, so that decoders check the data after the archive:
// checksums and the end of the compressed data.
func (s *stream) drain() error {
	// bufio's own WriteTo would lose an error that came with the last data.
	if _, err := io.Copy(io.Discard, struct{ io.Reader }{s.Reader}); err != nil {
		return readError(err)
	}
	return nil
}
