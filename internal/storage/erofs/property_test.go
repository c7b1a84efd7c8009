package erofs_test

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ramet.dev/ramet/internal/storage/erofs"
)

func drawNode(rt *rapid.T, w *erofs.Writer) (erofs.Node, file) {
	f := file{
		Kind:  erofs.Kind(rapid.SampledFrom([]int{1, 1, 1, 2, 2, 6, 7}).Draw(rt, "kind")),
		Mode:  rapid.Uint16Range(0, 0o7777).Draw(rt, "mode"),
		UID:   rapid.Uint32().Draw(rt, "uid"),
		GID:   rapid.Uint32().Draw(rt, "gid"),
		Mtime: rapid.Uint64Range(0, 1<<40).Draw(rt, "mtime"),
		Nsec:  rapid.Uint32Range(0, 1e9-1).Draw(rt, "nsec"),
		Nlink: 1,
	}
	n := erofs.Node{Kind: f.Kind, Mode: f.Mode, UID: f.UID, GID: f.GID, MtimeSec: int64(f.Mtime), MtimeNsec: f.Nsec}
	switch f.Kind {
	case erofs.Regular:
		unit := rapid.StringN(0, 8, -1).Draw(rt, "content")
		f.Content = strings.Repeat(unit, rapid.SampledFrom([]int{0, 1, 100, 4096, 5000}).Draw(rt, "times"))
		var err error
		if n.Data, err = w.Store(strings.NewReader(f.Content)); err != nil {
			rt.Fatalf("Store: %v", err)
		}
	case erofs.Symlink:
		f.Content = "@" + strings.Repeat("t", rapid.SampledFrom([]int{0, 10, 4031, 4032, 4094}).Draw(rt, "target"))
		n.Target = f.Content
	}
	return n, f
}

// TestAnyOrderGivesTheSameTree draws a tree, delivers its entries in a random
// order, parents after children and links before targets, and compares it with
// what the reader sees.
func TestAnyOrderGivesTheSameTree(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		img := filepath.Join(dir, "img")
		want := map[string]file{"": {Kind: erofs.Directory, Mode: 0o755}}
		writeImage(rt, img, func(w *erofs.Writer, tree *erofs.Tree) {
			steps := drawTree(rt, w, tree, want)
			for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(steps))).Draw(rt, "order") {
				if err := steps[name](); err != nil {
					rt.Fatalf("%s: %v", name, err)
				}
			}
		})
		countLinks(want)
		compareTrees(rt, want, readImage(rt, img))
	})
}

// drawTree returns the steps that build a random tree, and fills want with it.
func drawTree(rt *rapid.T, w *erofs.Writer, tree *erofs.Tree, want map[string]file) map[string]func() error {
	steps := map[string]func() error{}
	dirs, files := []string{""}, []string{}
	for i := range rapid.IntRange(1, 25).Draw(rt, "size") {
		name := path.Join(rapid.SampledFrom(dirs).Draw(rt, "dir"), fmt.Sprintf("%s%d", rapid.StringMatching(`[!.\-a-z~ÿ]{0,20}`).Draw(rt, "name"), i))
		if len(files) > 0 && rapid.IntRange(0, 4).Draw(rt, "link") == 0 {
			target := rapid.SampledFrom(files).Draw(rt, "target")
			want[name] = want[target]
			files = append(files, name)
			steps[name] = func() error { return tree.Link(name, "/"+target) }
			continue
		}
		n, f := drawNode(rt, w)
		f.Nid = uint64(i) + 1 // tells hard links from copies
		want[name] = f
		if f.Kind == erofs.Directory {
			dirs = append(dirs, name)
		} else {
			files = append(files, name)
		}
		steps[name] = func() error { return tree.Put("./"+name, &n) }
	}
	return steps
}

// TestReplacingFollowsTheModel puts and hides entries on few names over several
// layers, so that nearly every step replaces something, beside a plain map.
func TestReplacingFollowsTheModel(t *testing.T) {
	dir := t.TempDir()
	name := rapid.StringMatching(`[ab](/[ab](/[ab])?)?`)
	rapid.Check(t, func(rt *rapid.T) {
		img := filepath.Join(dir, "img")
		m := model{files: map[string]file{"": {Kind: erofs.Directory, Mode: 0o755}}, layer: map[string]int{}}
		writeImage(rt, img, func(w *erofs.Writer, tree *erofs.Tree) {
			for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
				p := name.Draw(rt, "path")
				if m.throughSymlink(p) {
					continue
				}
				switch rapid.IntRange(0, 9).Draw(rt, "step") {
				case 0:
					m.current++
					if err := tree.NextLayer(); err != nil {
						rt.Fatalf("NextLayer: %v", err)
					}
				case 1:
					m.hide(p, true)
					if err := tree.Hide(p); err != nil {
						rt.Fatalf("Hide: %v", err)
					}
				case 2:
					if m.files[p].Kind == erofs.Symlink {
						continue
					}
					m.hide(p, false)
					if err := tree.HideChildren(p); err != nil {
						rt.Fatalf("HideChildren: %v", err)
					}
				default:
					n, f := drawNode(rt, w)
					f.Nid = uint64(i) + 1
					err := tree.Put(p, &n)
					var refused *erofs.EntryError
					if ok := m.put(p, f); ok != (err == nil) || err != nil && !errors.As(err, &refused) {
						rt.Fatalf("Put(%q): %v, model says %v", p, err, ok)
					}
				}
			}
		})
		countLinks(m.files)
		compareTrees(rt, m.files, readImage(rt, img))
	})
}

type model struct {
	files   map[string]file
	layer   map[string]int
	current int
}

func parents(p string) []string {
	var out []string
	for d := path.Dir(p); d != "."; d = path.Dir(d) {
		out = append([]string{d}, out...)
	}
	return out
}

func (m *model) throughSymlink(p string) bool {
	return slices.ContainsFunc(parents(p), func(d string) bool { return m.files[d].Kind == erofs.Symlink })
}

func (m *model) put(p string, f file) bool {
	for _, d := range parents(p) {
		old, ok := m.files[d]
		switch {
		case ok && old.Kind == erofs.Directory:
			continue
		case ok && m.layer[d] == m.current:
			return false
		}
		m.files[d], m.layer[d] = file{Kind: erofs.Directory, Mode: 0o755}, m.current
	}
	if f.Kind != erofs.Directory || m.files[p].Kind != erofs.Directory {
		m.remove(p)
	}
	m.files[p], m.layer[p] = f, m.current
	return true
}

func (m *model) remove(p string) {
	for q := range m.files {
		if q == p || strings.HasPrefix(q, p+"/") {
			delete(m.files, q)
		}
	}
}

// hide removes lower entries, deepest first, and keeps directories that still
// have something below them.
func (m *model) hide(p string, self bool) {
	if m.files[p].Kind != erofs.Directory && !self {
		return
	}
	for _, q := range slices.Backward(slices.Sorted(maps.Keys(m.files))) {
		below := strings.HasPrefix(q, p+"/")
		if !below && !(self && q == p) || m.layer[q] == m.current {
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(m.files)), func(r string) bool { return strings.HasPrefix(r, q+"/") }) {
			delete(m.files, q)
		}
	}
}

// countLinks sets Nlink from the tree's shape and the identities in Nid.
func countLinks(tree map[string]file) {
	names := map[uint64]uint32{}
	for _, f := range tree {
		names[f.Nid]++
	}
	for p, f := range tree {
		f.Nlink = names[f.Nid]
		if f.Kind == erofs.Directory {
			f.Nlink = 2
			for q, c := range tree {
				if q != "" && c.Kind == erofs.Directory && (path.Dir(q) == p || p == "" && path.Dir(q) == ".") {
					f.Nlink++
				}
			}
		}
		tree[p] = f
	}
}

func compareTrees(rt *rapid.T, want, got map[string]file) {
	seen := map[uint64]uint64{} // identities: model's to image's
	for p, w := range want {
		g, ok := got[p]
		if !ok {
			rt.Fatalf("%q is missing", p)
		}
		if w.Kind != erofs.Directory {
			if nid, ok := seen[w.Nid]; ok && nid != g.Nid {
				rt.Fatalf("%q: a hard link became a file of its own", p)
			}
			seen[w.Nid] = g.Nid
		}
		w.Nid = g.Nid
		if w != g {
			rt.Fatalf("%q: got %+v, want %+v", p, g, w)
		}
	}
	if len(got) != len(want) {
		rt.Fatalf("got %d paths, want %d", len(got), len(want))
	}
}
