package compare

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/treediff"
)

// TestHunks checks which changes are compared line by line, and what those are
// told that are not.
func TestHunks(t *testing.T) {
	const text, binary, big = 1, 2, 3 // inodes
	files := func(suffix string) reader {
		return func(_ context.Context, n *cowfs.Node) ([]byte, error) {
			switch n.Ino {
			case binary:
				return []byte("a\x00" + suffix), nil
			case big:
				return []byte(strings.Repeat(suffix, 1000)), nil
			}
			return []byte("text\n" + suffix + "\n"), nil
		}
	}
	file := func(ino cowfs.Ino, size uint64) cowfs.Node {
		return cowfs.Node{Ino: ino, Attr: cowfs.Attr{Mode: cowfs.TypeReg, Size: size}}
	}
	const modified, data = treediff.Modified, treediff.DiffersData
	dir := cowfs.Node{Ino: text, Attr: cowfs.Attr{Mode: cowfs.TypeDir}}
	all := []struct {
		treediff.Change
		hunks               bool
		reason              api.NoHunks
		insertions, deleted int
	}{
		{treediff.Change{Kind: modified, Old: file(text, 9), New: file(text, 9), Differs: data}, true, "", 1, 1},
		{treediff.Change{Kind: modified, Old: file(text, 9), New: file(text, 9), Differs: treediff.DiffersMode}, false, "", 0, 0},
		{treediff.Change{Kind: treediff.Renamed, From: "/old", Old: file(text, 9), New: file(text, 9)}, false, "", 0, 0},
		{treediff.Change{Kind: modified, Old: dir, New: dir, Differs: treediff.DiffersMode}, false, "", 0, 0},
		{treediff.Change{Kind: modified, Old: dir, New: file(text, 9), Differs: treediff.DiffersType}, true, "", 2, 0},
		{treediff.Change{Kind: treediff.Deleted, Old: file(text, 9)}, true, "", 0, 2},
		{treediff.Change{Kind: modified, Old: file(binary, 9), New: file(binary, 9), Differs: data}, false, api.NoHunksBinary, 0, 0},
		{treediff.Change{Kind: modified, Old: file(text, 9), New: file(text, maxHunkFile+1), Differs: data}, false, api.NoHunksTooLarge, 0, 0},
		{treediff.Change{Kind: modified, Old: file(text, maxHunkFile+1), New: file(text, 9), Differs: data}, false, api.NoHunksTooLarge, 0, 0},
		{treediff.Change{Kind: treediff.Added, New: file(big, 3000)}, true, "", 1, 0},
		{treediff.Change{Kind: modified, Old: file(big, 3000), New: file(big, 3000), Differs: data}, true, "", 1, 1},
		{treediff.Change{Kind: modified, Old: file(big, 3000), New: file(big, 3000), Differs: data}, false, api.NoHunksLimit, 1, 1},
		{treediff.Change{Kind: modified, Old: file(text, 9), New: file(text, 9), Differs: data}, false, api.NoHunksLimit, 0, 0},
	}
	var changes []api.Change
	var from []treediff.Change
	for i := range all {
		all[i].Path = fmt.Sprint("/", i)
		from = append(from, all[i].Change)
		changes = append(changes, describe(&all[i].Change))
	}
	ctx := context.Background()
	h := hunker{old: files("old"), new: files("new"), hunks: true, left: 13000, unread: maxRead}
	if err := h.addTo(ctx, changes, from); err != nil {
		t.Fatal(err)
	}
	for i, c := range changes {
		w := all[i]
		if (c.Hunks != "") != w.hunks || c.NoHunks != w.reason || c.Insertions != w.insertions || c.Deletions != w.deleted {
			t.Errorf("%s %s: +%d -%d, hunks %.60q, reason %q, want %+v", c.Kind, c.Path, c.Insertions, c.Deletions, c.Hunks, c.NoHunks, w)
		}
	}
	counted := []api.Change{describe(&from[0]), describe(&from[0])}
	h = hunker{old: files("old"), new: files("new"), left: maxHunks, unread: 30}
	if err := h.addTo(ctx, counted, []treediff.Change{from[0], from[0]}); err != nil {
		t.Fatal(err)
	}
	if counted[0].Hunks != "" || counted[0].Insertions != 1 || counted[1].NoHunks != api.NoHunksLimit {
		t.Errorf("counted, and one that would be read after too much: %+v", counted)
	}
	broken := errors.New("broken")
	h = hunker{old: files("old"), new: func(context.Context, *cowfs.Node) ([]byte, error) { return nil, broken }, left: maxHunks, unread: maxRead}
	if err := h.addTo(ctx, changes, from); !errors.Is(err, broken) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}
