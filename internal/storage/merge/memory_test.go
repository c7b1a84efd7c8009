package merge

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// memory is a tree in memory, by paths. It always has a root.
type memory map[string]*File

// bytesOf is a Content in memory.
type bytesOf string

func (b bytesOf) Same(ctx context.Context, other Content) (bool, error) {
	if o, ok := other.(bytesOf); ok {
		return b == o, nil
	}
	return other.Same(ctx, b)
}

func (b bytesOf) Bytes(context.Context) ([]byte, error) {
	if len(b) > 1000 {
		return nil, ErrTooLarge
	}
	return []byte(b), nil
}

func (m memory) Lookup(_ context.Context, at string) (*File, error) { return m[at], nil }

func (m memory) List(_ context.Context, dir string) ([]string, error) {
	if !m[dir].IsDir() {
		return nil, nil
	}
	var names []string
	for at := range m {
		if at != "/" && path.Dir(at) == dir {
			names = append(names, path.Base(at))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m memory) Names(_ context.Context, f *File) ([]string, error) {
	var all []string
	for at, x := range m {
		if x.Inode == f.Inode && !x.IsDir() {
			all = append(all, at)
		}
	}
	slices.Sort(all)
	return all, nil
}

func dir(perm uint32) *File { return &File{Mode: typeDir | perm} }

func file(perm uint32, text string) *File {
	return &File{Mode: typeReg | perm, Size: int64(len(text)), Content: bytesOf(text)}
}

// tree returns a tree of a list of files, one a line: "PATH KIND[:MODE] TEXT", with
// kinds d, f, l (a symbolic link) and h (a hard link to TEXT).
func tree(list string) memory {
	m := memory{"/": dir(0o755)}
	for i, line := range strings.Split(list, "\n") {
		w := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(w) < 2 {
			continue
		}
		text := ""
		if len(w) == 3 {
			text = strings.ReplaceAll(w[2], "|", "\n")
		}
		kind, perm, _ := strings.Cut(w[1], ":")
		mode := uint32(0o644)
		if perm != "" {
			fmt.Sscanf(perm, "%o", &mode)
		}
		switch kind {
		case "d":
			m[w[0]] = dir(mode | 0o111)
		case "f":
			m[w[0]] = file(mode, text)
		case "l":
			m[w[0]] = &File{Mode: typeLink | 0o777, Target: text}
		case "p":
			m[w[0]] = &File{Mode: 0o010000 | mode}
		case "h":
			m[w[0]] = m[text]
			continue
		}
		m[w[0]].Inode = uint64(1000 + i)
	}
	m.count()
	return m
}

// count sets the numbers of links.
func (m memory) count() {
	n := map[uint64]uint32{}
	for _, f := range m {
		n[f.Inode]++
	}
	for at, f := range m {
		if f.Links != n[f.Inode] && !f.IsDir() {
			g := *f
			g.Links = n[f.Inode]
			m[at] = &g
		}
	}
}

// print is the inverse of tree but for the order. Names of one file show.
func (m memory) print() string {
	var out strings.Builder
	firsts := map[uint64]string{}
	for _, at := range slices.Sorted(maps.Keys(m)) {
		f := m[at]
		fmt.Fprintf(&out, "%s %o %d.%d %v", at, f.Mode, f.UID, f.GID, f.Xattrs)
		switch f.kind() {
		case typeReg:
			b, _ := f.Content.Bytes(context.Background())
			fmt.Fprintf(&out, " %q", b)
		case typeLink:
			out.WriteString(" -> " + f.Target)
		}
		if first, ok := firsts[f.Inode]; ok && !f.IsDir() {
			out.WriteString(" = " + first)
		} else {
			firsts[f.Inode] = at
		}
		out.WriteString("\n")
	}
	return out.String()
}

// changes returns how b differs from a.
func changes(t testing.TB, a, b memory) []Change {
	t.Helper()
	var all []Change
	for at := range union(a, b) {
		equal, err := same(context.Background(), a[at], b[at])
		if err != nil {
			t.Fatal(err)
		}
		if !equal {
			all = append(all, Change{Path: at})
		}
	}
	was := map[uint64]string{}
	for at, f := range a {
		was[f.Inode] = at
	}
	for _, at := range slices.Sorted(maps.Keys(b)) {
		from := was[b[at].Inode]
		if f := b[at]; f.Inode != 0 && f.Links <= 1 && from != "" && a[from].kind() == f.kind() && from != at && (b[from] == nil || b[from].Inode != f.Inode) {
			all = append(all, Change{Path: at, From: from, Renamed: true})
		}
	}
	return all
}

func union(trees ...memory) map[string]bool {
	all := map[string]bool{}
	for _, m := range trees {
		for at := range m {
			all[at] = true
		}
	}
	return all
}

// apply carries out ops on a copy of the tree as a file system would: whatever such
// a one refuses fails the test.
func (m memory) apply(t testing.TB, ops []Op) memory {
	t.Helper()
	out := maps.Clone(m)
	next, aside := uint64(1<<20), map[string]memory{}
	for i, op := range ops {
		fail := func(why string) { t.Fatalf("op %d of %+v: %s %s", i, ops, op.Path, why) }
		here := out[op.Path]
		if parent := out[path.Dir(op.Path)]; !parent.IsDir() {
			fail("has no directory above")
		}
		switch op.Kind {
		case Remove:
			if here == nil {
				fail("is not there")
			}
			if names, _ := out.List(context.Background(), op.Path); len(names) > 0 {
				fail("is not empty")
			}
			delete(out, op.Path)
		case Create:
			if here != nil {
				fail("is there")
			}
			f := *op.File
			f.Inode = next
			next++
			out[op.Path] = &f
		case Take:
			aside[op.Path] = memory{}
			for at, f := range out {
				if below(at, op.Path) {
					aside[op.Path][at[len(op.Path):]] = f
					delete(out, at)
				}
			}
		case Place:
			if here != nil || len(aside[op.From]) == 0 {
				fail("cannot be placed")
			}
			for at, f := range aside[op.From] {
				out[op.Path+at] = f
			}
			delete(aside, op.From)
		case Link:
			if here != nil || out[op.From] == nil || out[op.From].IsDir() {
				fail("cannot be a link")
			}
			out[op.Path] = out[op.From]
		case SetAttrs:
			if here == nil || here.kind() != op.File.kind() {
				fail("is another file")
			}
			f := *here
			f.Mode, f.UID, f.GID, f.Xattrs = op.File.Mode, op.File.UID, op.File.GID, op.File.Xattrs
			for at, x := range out {
				if x.Inode == here.Inode && (!x.IsDir() || at == op.Path) {
					out[at] = &f
				}
			}
		}
	}
	if len(aside) > 0 {
		t.Fatalf("%v were taken and not placed", aside)
	}
	out.count()
	return out
}

// merged plans and carries out a merge of sides into ours.
func merged(t testing.TB, s Strategy, base, ours memory, sides ...memory) (memory, *Plan) {
	t.Helper()
	ctx := context.Background()
	p := New(ours, s, func(string) bool { return true })
	for i, side := range sides {
		err := p.Merge(ctx, Side{Name: fmt.Sprint(i), Base: base, Tree: side, Ours: changes(t, base, ours), Theirs: changes(t, base, side)})
		if err != nil {
			t.Fatal(err)
		}
	}
	ops, err := p.Ops(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return ours.apply(t, ops), p
}
