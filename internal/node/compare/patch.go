package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/storage/merge"
)

// patchFile is the file that a Patch comes in, see wire.Patch.
type patchFile struct {
	file *os.File
	size int64
	body wire.Patch
	// What it may still have: bytes of contents, and pieces that they are in.
	bytes  int64
	pieces int
}

const (
	// maxPatchFile bounds the contents that one merge writes, in bytes. The trees
	// that they come from are not believed: many files may claim the same pages.
	maxPatchFile = 16 << 30
	// maxPatchPieces bounds the parts of files between holes; each takes minPiece
	// bytes or more of wire.MaxPatchBytes.
	maxPatchPieces = wire.MaxPatchBytes / minPiece
	minPiece       = len(`{"o":0,"n":1,"at":0}`)
)

func errPatchTooLarge(of string) error {
	return api.Errorf(api.CodeLimit, "the merge writes %s: merge some paths at a time", of)
}

// writePatch writes the ops and the contents that they need to file.
func writePatch(ctx context.Context, file *os.File, ops []merge.Op) (*patchFile, error) {
	if len(ops) > wire.MaxPatchOps {
		return nil, api.Errorf(api.CodeLimit, "the merge makes %d changes, and one can make %d: merge some paths at a time", len(ops), wire.MaxPatchOps)
	}
	p := &patchFile{file: file, bytes: maxPatchFile, pieces: maxPatchPieces}
	if err := p.write(ctx, ops); err != nil {
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return nil, api.Errorf(api.CodeNoSpace, "write changes: %w", err)
		}
		return nil, fmt.Errorf("write changes: %w", err)
	}
	return p, nil
}

func (p *patchFile) write(ctx context.Context, ops []merge.Op) error {
	list := make([]wire.PatchOp, len(ops))
	for i := range ops {
		list[i] = patchOp(&ops[i])
		if f := ops[i].File; ops[i].Kind == merge.Create && f.Content != nil {
			var err error
			if list[i].Data, err = p.contents(ctx, f.Content); err != nil {
				return err
			}
		}
	}
	p.body.OpsAt = p.size
	out := bufio.NewWriter(io.NewOffsetWriter(p.file, p.size))
	enc := json.NewEncoder(&counter{to: out, n: &p.body.OpsSize})
	for i := range list {
		if err := enc.Encode(&list[i]); err != nil {
			return err
		}
		if p.body.OpsSize > wire.MaxPatchBytes {
			return api.Errorf(api.CodeLimit, "the merge makes too many changes: merge some paths at a time")
		}
	}
	return out.Flush()
}

// counter counts what is written.
type counter struct {
	to io.Writer
	n  *int64
}

// Write implements io.Writer.
func (c *counter) Write(b []byte) (int, error) {
	n, err := c.to.Write(b)
	*c.n += int64(n)
	return n, err
}

// contents writes what a file contains.
func (p *patchFile) contents(ctx context.Context, c merge.Content) (parts []wire.PatchData, err error) {
	add := func(off int64, data []byte) error {
		if p.bytes -= int64(len(data)); p.bytes < 0 {
			return errPatchTooLarge(fmt.Sprintf("more than %d GiB", maxPatchFile>>30))
		}
		if _, err := p.file.WriteAt(data, p.size); err != nil {
			return err
		}
		n := int64(len(data))
		if last := len(parts) - 1; last >= 0 && parts[last].Offset+parts[last].N == off {
			parts[last].N += n
		} else {
			if p.pieces--; p.pieces < 0 {
				return errPatchTooLarge(fmt.Sprintf("more than %d parts of files between holes", maxPatchPieces))
			}
			parts = append(parts, wire.PatchData{Offset: off, N: n, At: p.size})
		}
		p.size += n
		return nil
	}
	switch c := c.(type) {
	case *mergeContent:
		err = c.each(ctx, add)
	case merge.Text:
		err = add(0, c)
	}
	return parts, err
}

var patchKinds = [...]wire.PatchKind{
	merge.Remove: wire.PatchRemove, merge.Create: wire.PatchMake, merge.Link: wire.PatchLink, merge.SetAttrs: wire.PatchAttrs,
	merge.Take: wire.PatchTake, merge.Place: wire.PatchPlace,
}

// patchOp returns an operation without its contents.
func patchOp(op *merge.Op) wire.PatchOp {
	out := wire.PatchOp{Kind: patchKinds[op.Kind], Path: []byte(op.Path)}
	if op.From != "" {
		out.From = []byte(op.From)
	}
	f := op.File
	if f == nil {
		return out
	}
	out.Mode, out.UID, out.GID, out.Major, out.Minor, out.Size = f.Mode, f.UID, f.GID, f.Major, f.Minor, f.Size
	if f.Target != "" {
		out.Target = []byte(f.Target)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Xattrs)) {
		value := []byte(f.Xattrs[name])
		if op.Old != nil && op.Old.Xattrs[name] == f.Xattrs[name] {
			if _, had := op.Old.Xattrs[name]; had {
				continue
			}
		}
		out.Xattrs = append(out.Xattrs, wire.PatchXattr{Name: []byte(name), Value: &value})
	}
	if op.Old != nil {
		for _, name := range slices.Sorted(maps.Keys(op.Old.Xattrs)) {
			if _, keeps := f.Xattrs[name]; !keeps {
				out.Xattrs = append(out.Xattrs, wire.PatchXattr{Name: []byte(name)})
			}
		}
	}
	return out
}
