package compare

import (
	"cmp"
	"context"
	"fmt"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/textdiff"
	"ramet.dev/ramet/internal/storage/treediff"
)

const (
	// maxHunkFile is the largest file that is compared line by line, in bytes.
	maxHunkFile = 1 << 20
	// maxHunks bounds the unified diffs of one answer together, in bytes.
	maxHunks = 16 << 20
	// maxRead bounds what is read for them.
	maxRead = 1 << 30
)

// hunker compares text files line by line.
type hunker struct {
	old, new reader
	hunks    bool  // else lines are only counted
	left     int   // bytes of unified diffs that may still be added
	unread   int64 // bytes that may still be read
}

// reader reads a file of one side.
type reader func(ctx context.Context, n *cowfs.Node) ([]byte, error)

func readerOf(f *cowfs.Files) reader {
	return func(ctx context.Context, n *cowfs.Node) ([]byte, error) { return f.ReadFile(ctx, n, maxHunkFile) }
}

// addTo adds to each of changes that is of a file's contents how its lines differ,
// or why it does not say. from are the same changes.
func (h *hunker) addTo(ctx context.Context, changes []api.Change, from []treediff.Change) error {
	for i := range changes {
		c, f := &changes[i], &from[i]
		isData := f.Kind == treediff.Added || f.Kind == treediff.Deleted || f.Differs&(treediff.DiffersData|treediff.DiffersType) != 0
		size := int64(0)
		if isFile(&f.Old.Attr) {
			size += int64(f.Old.Attr.Size)
		}
		if isFile(&f.New.Attr) {
			size += int64(f.New.Attr.Size)
		}
		switch {
		case c.Type != "file" || !isData:
			continue
		case max(c.Size, c.OldSize) > maxHunkFile:
			c.NoHunks = api.NoHunksTooLarge
			continue
		case h.left == 0 || h.unread < size:
			c.NoHunks = api.NoHunksLimit
			continue
		}
		h.unread -= size
		if err := h.compare(ctx, c, f); err != nil {
			return fmt.Errorf("compare %s: %w", c.Path, err)
		}
		if len(c.Hunks) > h.left {
			c.Hunks, c.NoHunks, h.left = "", api.NoHunksLimit, 0
		}
		h.left -= len(c.Hunks)
	}
	return nil
}

func (h *hunker) compare(ctx context.Context, c *api.Change, f *treediff.Change) error {
	var a, b []byte
	var err error
	if isFile(&f.Old.Attr) {
		if a, err = h.old(ctx, &f.Old); err != nil {
			return err
		}
	}
	if isFile(&f.New.Attr) {
		if b, err = h.new(ctx, &f.New); err != nil {
			return err
		}
	}
	if !textdiff.IsText(a) || !textdiff.IsText(b) {
		c.NoHunks = api.NoHunksBinary
		return nil
	}
	x, y := textdiff.MarkedLines(a), textdiff.MarkedLines(b)
	edits, err := textdiff.Script(ctx, x, y)
	if err != nil {
		return err
	}
	for _, e := range edits {
		c.Deletions += e.A1 - e.A0
		c.Insertions += e.B1 - e.B0
	}
	if h.hunks {
		c.Hunks = textdiff.Unified(cmp.Or(c.OldPath, c.Path), c.Path, edits, x, y)
	}
	return nil
}
