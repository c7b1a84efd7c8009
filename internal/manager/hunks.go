package manager

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
)

const (
	// maxHunkFile is the largest file that is compared line by line, in bytes.
	maxHunkFile = 1 << 20
	// maxHunks bounds the unified diffs of one answer together, in bytes.
	maxHunks = 16 << 20
)

// hunker adds unified diffs to changes of text files.
type hunker struct {
	old, new reader
	left     int // bytes that may still be added
}

// reader reads the file at a path of one side.
type reader func(ctx context.Context, path string) ([]byte, error)

func (s *side) read(ctx context.Context, p string) ([]byte, error) {
	return s.sentry.Blob(ctx, &wire.Call{Op: wire.OpReadFile, ReadFile: &wire.ReadFile{Path: p, Max: maxHunkFile}}, nil)
}

// addTo adds to each of changes that is of a file its unified diff, or why it
// has none. wasFile reports whether a path was a file on the old side.
func (h *hunker) addTo(ctx context.Context, changes []sandbox.Change, wasFile func(path string) bool) error {
	for i := range changes {
		c := &changes[i]
		switch {
		case c.Type != "file":
			continue
		case max(c.Size, c.OldSize) > maxHunkFile:
			c.NoHunks = sandbox.NoHunksTooLarge
			continue
		case h.left == 0:
			c.NoHunks = sandbox.NoHunksLimit
			continue
		}
		var err error
		c.Hunks, c.NoHunks, err = h.compare(ctx, c, c.Kind != sandbox.Added && wasFile(c.Path))
		if err != nil {
			return fmt.Errorf("compare %s: %w", c.Path, err)
		}
		if len(c.Hunks) > h.left {
			c.Hunks, c.NoHunks, h.left = "", sandbox.NoHunksLimit, 0
		}
		h.left -= len(c.Hunks)
	}
	return nil
}

func (h *hunker) compare(ctx context.Context, c *sandbox.Change, wasFile bool) (string, sandbox.NoHunks, error) {
	var a, b []byte
	var err error
	if wasFile {
		a, err = h.old(ctx, c.Path)
	}
	if err == nil && c.Kind != sandbox.Deleted {
		b, err = h.new(ctx, c.Path)
	}
	switch sandbox.CodeOf(err) {
	case "":
	case sandbox.CodeNotFound, sandbox.CodeInvalid, sandbox.CodeLimit: // it vanished, is no file any more, or grew
		return "", sandbox.NoHunksChanged, nil
	default:
		return "", "", err
	}
	if !isText(a) || !isText(b) {
		return "", sandbox.NoHunksBinary, nil
	}
	text, err := unified(ctx, c.Path, lines(a), lines(b))
	return text, "", err
}

func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// lines splits b behind each newline. A last line without one gets it, with the
// mark that diff(1) prints.
func lines(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	ls := strings.SplitAfter(string(b), "\n")
	if last := len(ls) - 1; ls[last] == "" {
		ls = ls[:last]
	} else {
		ls[last] += "\n\\ No newline at end of file\n"
	}
	return ls
}
