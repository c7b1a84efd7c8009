package bounded

import (
	"compress/bzip2"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"

	"ramet.dev/ramet/internal/image/debian/fault"
)

// maxDictionary bounds the memory of a decoder: xz -9 uses 64 MiB.
const maxDictionary = 128 << 20

// Decompress returns the plain content of in, whose compression the extension ext names.
// The caller calls done at the end.
func Decompress(what, ext string, in io.Reader) (out io.Reader, done func(), err error) {
	done = func() {}
	switch ext {
	case "":
		out = in
	case ".gz":
		out, err = gzip.NewReader(in)
	case ".xz":
		out, err = xz.NewReader(in, maxDictionary)
	case ".zst":
		var z *zstd.Decoder
		// One decoder per package runs at a time in each worker already.
		z, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxDictionary))
		if err == nil {
			out, done = z, z.Close
		}
	case ".bz2":
		out = bzip2.NewReader(in)
	default:
		return nil, nil, fault.Malformed(what, "unknown compression %.10q", ext)
	}
	if err != nil {
		return nil, nil, fault.Malformed(what, "cannot decompress %s: %v", ext, err)
	}
	return out, done, nil
}
