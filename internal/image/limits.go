package image

import (
	"cmp"
	"context"
	"io"
)

// Limits bound the resources of an import. A zero field stands for its default.
// The lengths of paths and names are bounded by the file system itself.
type Limits struct {
	TotalBytes int64 // contents of all files, those replaced later included
	FileBytes  int64 // contents of one file
	Entries    int   // files, directories and links, implied parents included
	XattrBytes int64 // names and values of extended attributes, which are kept in memory
	Ratio      int64 // decompressed by compressed size
	RatioFrom  int64 // decompressed size from which Ratio counts: small archives of zeros are common
}

const (
	defaultTotalBytes = 64 << 30
	defaultFileBytes  = 32 << 30
	defaultEntries    = 4 << 20
	defaultXattrBytes = 64 << 20
	defaultRatio      = 300
	defaultRatioFrom  = 256 << 20

	// maxWindow bounds the memory of a decoder. The highest levels of zstd use
	// 128 MiB, those of xz 64 MiB.
	maxWindow = 256 << 20

	// maxDocument bounds manifests and configurations, as registries do.
	maxDocument = 4 << 20

	maxLayers = 512
)

func (l Limits) withDefaults() Limits {
	return Limits{
		TotalBytes: cmp.Or(l.TotalBytes, defaultTotalBytes),
		FileBytes:  cmp.Or(l.FileBytes, defaultFileBytes),
		Entries:    cmp.Or(l.Entries, defaultEntries),
		XattrBytes: cmp.Or(l.XattrBytes, defaultXattrBytes),
		Ratio:      cmp.Or(l.Ratio, defaultRatio),
		RatioFrom:  cmp.Or(l.RatioFrom, defaultRatioFrom),
	}
}

// streamBytes bounds a decompressed archive: its contents and as much again for
// headers and padding. Without it an endless tail of zeros would never end.
func (l Limits) streamBytes() int64 { return 2*l.TotalBytes + 1<<20 }

// countReader counts and reports the bytes that are read, and ends when the context does.
type countReader struct {
	ctx    context.Context
	r      io.Reader
	n      int64
	report func(n int64) // called with each read's length; may be nil
}

func (c *countReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.report != nil && n > 0 {
		c.report(int64(n))
	}
	return n, err
}

// expandReader reads the output of a decoder of input, within limits.
type expandReader struct {
	r      io.Reader
	input  *countReader
	limits Limits
	n      int64
}

func (e *expandReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	e.n += int64(n)
	switch {
	case e.n > e.limits.streamBytes():
		return 0, refused("archive expands to more than %d bytes", e.limits.streamBytes())
	case e.n > e.limits.RatioFrom && e.n/e.limits.Ratio > e.input.n:
		return 0, refused("archive expands to more than %d times its size", e.limits.Ratio)
	}
	return n, err
}
