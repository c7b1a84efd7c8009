package pack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/pages"
)

// forms are all ways to pack, with an end to what a hostile tree can make them write.
func forms(ctx context.Context, s *Source) map[string]error {
	out := func() io.Writer {
		left := 4 << 20
		return writerFunc(func(p []byte) (int, error) {
			if left -= len(p); left < 0 {
				return 0, errFull
			}
			return len(p), nil
		})
	}
	return map[string]error{
		"layer": s.Layer(ctx, out()), "tar": s.Tar(ctx, out()), "bottom": s.bottom(ctx, out()),
		"image": s.Fill(ctx, &nowhereFor{nowhere{erofs.NewTree(), nil}, 4 << 20}),
	}
}

var errFull = errors.New("the disk is full")

// nowhereFor is an image that takes so many bytes.
type nowhereFor struct {
	nowhere
	left int64
}

func (n *nowhereFor) PutFile(path string, node *erofs.Node, contents io.Reader, _ int64) error {
	got, err := io.Copy(io.Discard, io.LimitReader(contents, n.left+1))
	if err != nil {
		return err
	}
	if n.left -= got; n.left < 0 {
		return errFull
	}
	return n.tree.Put(path, node)
}

// TestHostileTrees packs trees that no sandbox makes.
func TestHostileTrees(t *testing.T) {
	image := someImage(t)
	for name, c := range map[string]struct {
		change func(g *guest)
		want   error
	}{
		"a directory in itself": {func(g *guest) {
			ino, dir := g.must("/a/b")
			g.ok(g.fs.Insert(ino, cowfs.Entry{Name: "up", Ino: dir, Type: 4}))
		}, pages.ErrCorrupt},
		"a directory with two names": {func(g *guest) {
			ino, _ := g.must("/a/b")
			g.ok(g.fs.Insert(g.fs.Root(), cowfs.Entry{Name: "again", Ino: ino, Type: 4}))
		}, pages.ErrCorrupt},
		"an entry that leads nowhere": {func(g *guest) {
			g.ok(g.fs.Insert(g.fs.Root(), cowfs.Entry{Name: "none", Ino: cowfs.FirstIno + 1000, Type: 8}))
		}, cowfs.ErrNotExist},
		"a mode that is none": {func(g *guest) {
			g.write("/x", 0, nil)
			g.change("/x", func(a *cowfs.Attr) { a.Mode = 0o010644 | 0o030000 })
		}, pages.ErrCorrupt},
		"a root that is a file": {func(g *guest) { g.change("/", func(a *cowfs.Attr) { a.Mode = cowfs.TypeReg }) }, pages.ErrCorrupt},
		"a link without a target": {func(g *guest) {
			g.symlink("/x", "y")
			g.change("/x", func(a *cowfs.Attr) { a.Size = 5 })
			g.create("/y", cowfs.TypeLink|0o777)
		}, pages.ErrCorrupt},
		"more bytes than there can be": {func(g *guest) {
			g.write("/x", 0, nil)
			g.change("/x", func(a *cowfs.Attr) { a.Size = 1 << 62 })
		}, errFull},
	} {
		g := newGuest(t, image)
		c.change(g)
		for form, err := range forms(t.Context(), g.source()) {
			if !errors.Is(err, c.want) {
				t.Errorf("%s as %s: %v, want %v", name, form, err, c.want)
			}
		}
	}
}

// FuzzPack packs files whose pages somebody else has written: whatever is in them,
// packing ends, within what is there, and what comes out can be read. The input is
// a list of changes to good pages: offset and new value, 16 bits each.
func FuzzPack(f *testing.F) {
	image := someImage(f)
	g := newGuest(f, image)
	r := rand.New(rand.NewPCG(3, 3))
	for range 100 {
		g.random(r)
	}
	state, segs, err := g.fs.Pin("fuzz")
	g.ok(err)
	good := make([]byte, 64<<10)
	n, err := segs[0].File.ReadAt(good, 0)
	if err != nil && err != io.EOF {
		f.Fatal(err)
	}
	good = good[:n]
	f.Add([]byte{})
	for i := range 40 {
		f.Add(binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, uint16(4096+i*97)), uint16(1<<16-1-i)))
	}
	file, err := os.Create(filepath.Join(f.TempDir(), "pages"))
	g.ok(err)
	f.Cleanup(func() { file.Close() })
	f.Fuzz(func(t *testing.T, changes []byte) {
		data := bytes.Clone(good)
		for ; len(changes) >= 4; changes = changes[4:] {
			copy(data[int(binary.LittleEndian.Uint16(changes))%(len(data)-1):], changes[2:4])
		}
		if _, err := file.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		seg := segs[0]
		seg.File = file
		now, err := cowfs.NewFiles(btree.OpenView([]pages.Segment{seg}, state.Root), image)
		if err != nil {
			t.Fatal(err)
		}
		base, err := cowfs.NewFiles(btree.OpenView(nil, 0), image)
		if err != nil {
			t.Fatal(err)
		}
		for form, err := range forms(t.Context(), &Source{Image: base, Files: now, Keep: []string{"/tmp", "/usr/f1"}}) {
			if err != nil && !cowfs.IsCorrupt(err) && !errors.Is(err, ErrUnfit) && !errors.Is(err, errFull) {
				t.Fatalf("%s: %v", form, err)
			}
		}
	})
}
