package merge

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// conflictsOf returns "PATH REASON" of each conflict.
func conflictsOf(p *Plan) []string {
	var all []string
	for _, c := range p.Conflicts() {
		s := c.Path + " " + string(c.Reason)
		if c.Resolved {
			s += " resolved"
		}
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

const lines = "1|2|3|4|5|6|7|8|9|"

func TestMerge(t *testing.T) {
	for name, c := range map[string]struct {
		base, ours, theirs, want string
		conflicts                []string
		strategy                 Strategy
	}{
		"nothing":                {base: "/a f x", ours: "/a f x", theirs: "/a f x", want: "/a f x"},
		"theirs adds":            {theirs: "/d d\n/d/a f x\n/l l a\n/p p", want: "/d d\n/d/a f x\n/l l a\n/p p"},
		"theirs deletes":         {base: "/d d\n/d/a f x\n/b f", ours: "/d d\n/d/a f x\n/b f", theirs: "", want: ""},
		"theirs changes":         {base: "/a f x", ours: "/a f x", theirs: "/a f:600 y", want: "/a f:600 y"},
		"ours changes":           {base: "/a f x\n/b f", ours: "/a f y\n/c f", theirs: "/a f x\n/b f", want: "/a f y\n/c f"},
		"both add the same":      {ours: "/d d\n/d/a f x", theirs: "/d d\n/d/a f x\n/d/b f", want: "/d d\n/d/a f x\n/d/b f"},
		"both delete":            {base: "/a f x", want: ""},
		"both add":               {ours: "/a f x", theirs: "/a f y", want: "/a f x", conflicts: []string{"/a content"}},
		"both add, theirs":       {ours: "/a f x", theirs: "/a f y", want: "/a f y", conflicts: []string{"/a content resolved"}, strategy: Theirs},
		"texts":                  {base: "/a f " + lines, ours: "/a f x|" + lines, theirs: "/a f:600 " + lines + "y|", want: "/a f:600 x|" + lines + "y|"},
		"texts in conflict":      {base: "/a f 1|2|3|4|", ours: "/a f 1|x|3|4|", theirs: "/a f 1|y|3|z|", want: "/a f 1|x|3|4|", conflicts: []string{"/a content"}},
		"texts, ours":            {base: "/a f 1|2|3|4|", ours: "/a f 1|x|3|4|", theirs: "/a f 1|y|3|z|", want: "/a f 1|x|3|z|", conflicts: []string{"/a content resolved"}, strategy: Ours},
		"texts, theirs":          {base: "/a f 1|2|3|4|", ours: "/a f 0|2|x|4|", theirs: "/a f 1|2|y|z|", want: "/a f 0|2|y|z|", conflicts: []string{"/a content resolved"}, strategy: Theirs},
		"binary":                 {base: "/a f \x00a", ours: "/a f \x00b", theirs: "/a f \x00c", want: "/a f \x00b", conflicts: []string{"/a content"}},
		"binary, theirs":         {base: "/a f \x00a", ours: "/a f:600 \x00b", theirs: "/a f \x00c", want: "/a f:600 \x00c", conflicts: []string{"/a content resolved"}, strategy: Theirs},
		"mode and contents":      {base: "/a f x", ours: "/a f:600 x", theirs: "/a f y", want: "/a f:600 y"},
		"contents and mode":      {base: "/a f x", ours: "/a f y", theirs: "/a f:600 x", want: "/a f:600 y"},
		"two modes":              {base: "/a f x", ours: "/a f:600 x", theirs: "/a f:755 x", want: "/a f:600 x", conflicts: []string{"/a attributes"}},
		"two modes, theirs":      {base: "/a f x", ours: "/a f:600 x", theirs: "/a f:755 x", want: "/a f:755 x", conflicts: []string{"/a attributes resolved"}, strategy: Theirs},
		"link targets":           {base: "/l l a", ours: "/l l b", theirs: "/l l c", want: "/l l b", conflicts: []string{"/l content"}},
		"we delete":              {base: "/a f x", theirs: "/a f y", want: "", conflicts: []string{"/a deleted"}},
		"we delete, theirs":      {base: "/d d\n/d/a f x", theirs: "/d d\n/d/a f y", want: "/d d\n/d/a f y", conflicts: []string{"/d directory resolved", "/d/a deleted resolved"}, strategy: Theirs},
		"they delete":            {base: "/a f x", ours: "/a f y", want: "/a f y", conflicts: []string{"/a deleted"}},
		"they delete, theirs":    {base: "/a f x", ours: "/a f y", want: "", conflicts: []string{"/a deleted resolved"}, strategy: Theirs},
		"they delete, ours":      {base: "/a f x", ours: "/a f y", want: "/a f y", conflicts: []string{"/a deleted resolved"}, strategy: Ours},
		"file to directory":      {base: "/a f x", ours: "/a f x", theirs: "/a d\n/a/b f", want: "/a d\n/a/b f"},
		"directory to file":      {base: "/a d\n/a/b f", ours: "/a d\n/a/b f", theirs: "/a f x", want: "/a f x"},
		"directory to link":      {base: "/a d\n/a/b f", ours: "/a d\n/a/b f", theirs: "/a l x", want: "/a l x"},
		"file, changed, to dir":  {base: "/a f x", ours: "/a f y", theirs: "/a d\n/a/b f", want: "/a f y", conflicts: []string{"/a type", "/a/b directory"}},
		"the same, theirs":       {base: "/a f x", ours: "/a f y", theirs: "/a d\n/a/b f", want: "/a d\n/a/b f", conflicts: []string{"/a type resolved"}, strategy: Theirs},
		"dir, changed, to file":  {base: "/a d\n/a/b f", ours: "/a d\n/a/b f x", theirs: "/a f x", want: "/a d\n/a/b f x", conflicts: []string{"/a directory", "/a/b deleted"}},
		"that, theirs":           {base: "/a d\n/a/b f", ours: "/a d\n/a/b f x\n/a/c d\n/a/c/d f", theirs: "/a f x", want: "/a f x", conflicts: []string{"/a/b deleted resolved", "/a/c directory resolved", "/a/c/d directory resolved"}, strategy: Theirs},
		"that, ours":             {base: "/a d\n/a/b f", ours: "/a d\n/a/b f x", theirs: "/a f x", want: "/a d\n/a/b f x", conflicts: []string{"/a directory resolved", "/a/b deleted resolved"}, strategy: Ours},
		"deleted dir, we add":    {base: "/a d\n/a/b f", ours: "/a d\n/a/b f\n/a/c f", theirs: "", want: "/a d\n/a/c f", conflicts: []string{"/a directory"}},
		"deleted dir, we change": {base: "/a d\n/a/b f\n/a/c f", ours: "/a d\n/a/b f x\n/a/c f", theirs: "", want: "/a d\n/a/b f x", conflicts: []string{"/a/b deleted"}},
		"deep dir, we add":       {base: "/a d\n/a/b d\n/a/b/c f", ours: "/a d\n/a/b d\n/a/b/c f\n/a/b/d f", theirs: "", want: "/a d\n/a/b d\n/a/b/d f", conflicts: []string{"/a/b directory"}},
		"we delete dir, they add": {base: "/a d\n/a/b f", ours: "", theirs: "/a d\n/a/b f\n/a/c d\n/a/c/d f", want: "",
			conflicts: []string{"/a/c directory", "/a/c/d directory"}},
		"we delete dir, theirs": {base: "/a d\n/a/b f", ours: "", theirs: "/a d\n/a/b f\n/a/c d\n/a/c/d f", want: "/a d\n/a/c d\n/a/c/d f",
			conflicts: []string{"/a directory resolved", "/a/c directory resolved"}, strategy: Theirs},
		"we make it a file":       {base: "/a d", ours: "/a f x", theirs: "/a d\n/a/c f", want: "/a f x", conflicts: []string{"/a/c directory"}},
		"both make directories":   {ours: "/a d\n/a/b f", theirs: "/a d\n/a/c f", want: "/a d\n/a/b f\n/a/c f"},
		"hard links come":         {theirs: "/a f x\n/b h /a", want: "/a f x\n/b h /a"},
		"a link to what is there": {base: "/a f x", ours: "/a f x", theirs: "/a f x\n/b h /a", want: "/a f x\n/b h /a"},
		"also if we changed it":   {base: "/a f x", ours: "/a f y", theirs: "/a f x\n/b h /a", want: "/a f y\n/b h /a"},
		"linked files change":     {base: "/a f x\n/b h /a", ours: "/a f x\n/b h /a", theirs: "/a f y\n/b h /a", want: "/a f y\n/b h /a"},
		"so does our own link":    {base: "/a f x\n/b h /a", ours: "/a f x\n/b h /a\n/c h /a", theirs: "/a f y\n/b h /a", want: "/a f y\n/b h /a\n/c h /a"},
		"linked texts": {base: "/a f " + lines + "\n/b h /a", ours: "/a f x|" + lines + "\n/b h /a", theirs: "/a f " + lines + "y|\n/b h /a",
			want: "/a f x|" + lines + "y|\n/b h /a"},
		"a link is broken": {base: "/a f x\n/b h /a", ours: "/a f x\n/b h /a", theirs: "/a f:600 x\n/b f x", want: "/a f:600 x\n/b f x"},
		"linked modes":     {base: "/a f x\n/b h /a", ours: "/a f x\n/b h /a", theirs: "/a f:600 x\n/b h /a", want: "/a f:600 x\n/b h /a"},
	} {
		t.Run(name, func(t *testing.T) {
			got, p := merged(t, c.strategy, tree(c.base), tree(c.ours), tree(c.theirs))
			if d := cmp.Diff(tree(c.want).print(), got.print()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.conflicts, conflictsOf(p)); d != "" {
				t.Errorf("conflicts (-want +got):\n%s", d)
			}
		})
	}
}

func TestConflictSaysAll(t *testing.T) {
	base, ours, theirs := tree("/a f 1|2|3|\n/b f \x00"), tree("/a f 1|x|3|\n/b f \x001"), tree("/a f 1|y|3|\n/b f \x002")
	_, p := merged(t, Leave, base, ours, theirs)
	c := p.Conflicts()
	if len(c) != 2 || c[0].Base != base["/a"] || c[0].Ours != ours["/a"] || c[0].Theirs != theirs["/a"] || c[0].From != "0" || c[0].OursFrom != "" {
		t.Fatalf("conflicts: %+v", c)
	}
	if d := cmp.Diff([]Hunk{{Base: Lines{1, "2\n"}, Ours: Lines{1, "x\n"}, Theirs: Lines{1, "y\n"}}}, c[0].Hunks); d != "" {
		t.Errorf("hunks (-want +got):\n%s", d)
	}
	if c[0].NoHunks != "" || c[1].Hunks != nil || c[1].NoHunks != Binary {
		t.Errorf("hunks: %+v", c)
	}
	large := func(s string) string { return "/a f " + strings.Repeat(s, 2000) }
	_, p = merged(t, Leave, tree(large("a")), tree(large("b")), tree(large("c")))
	if c := p.Conflicts(); len(c) != 1 || c[0].NoHunks != TooLarge {
		t.Errorf("large: %+v", c)
	}
}

// TestMergeSeveral merges one side after the other.
func TestMergeSeveral(t *testing.T) {
	base := tree("/t f " + lines + "\n/s f " + lines + "\n/d d\n/d/a f")
	a := tree("/t f a|" + lines + "\n/s f a|" + lines + "\n/new d\n/new/a f a\n/both f 1\n/d d\n/d/a f\n/d/from-a f")
	b := tree("/t f " + lines + "b|\n/s f a|" + lines + "b|\n/new d\n/new/b f b\n/both f 2")
	got, p := merged(t, Leave, base, base, a, b)
	want := tree("/t f a|" + lines + "b|\n/s f a|" + lines + "b|\n/new d\n/new/a f a\n/new/b f b\n/both f 1\n/d d\n/d/from-a f")
	if d := cmp.Diff(want.print(), got.print()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"/both content", "/d directory"}, conflictsOf(p)); d != "" {
		t.Errorf("conflicts (-want +got):\n%s", d)
	}
	if c := p.Conflicts()[0]; c.From != "1" || c.OursFrom != "0" {
		t.Errorf("conflict is between %q and %q", c.OursFrom, c.From)
	}
	applied, err := p.Applied(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, a := range applied {
		said = append(said, fmt.Sprint(a.Path, a.From, a.Merged, a.Old != nil, a.New != nil))
	}
	if d := cmp.Diff([]string{
		"/both0false false true", "/d/a1false true false", "/d/from-a0false false true", "/new0false false true", "/new/a0false false true",
		"/new/b1false false true", "/s1true true true", "/t1true true true",
	}, said); d != "" {
		t.Errorf("applied (-want +got):\n%s", d)
	}
	got, _ = merged(t, Theirs, base, base, a, b)
	if x, _ := got["/both"].Content.Bytes(context.Background()); string(x) != "2" || got["/d"] != nil {
		t.Errorf("theirs is not the last one: %s", got.print())
	}
}

// TestMergeWithin keeps to some paths.
func TestMergeWithin(t *testing.T) {
	base := tree("/a d\n/a/x f\n/b f\n/c d\n/c/kept f")
	theirs := tree("/a d\n/a/x f 1\n/b f 1\n/n d\n/n/y f")
	p := New(base, Theirs, func(at string) bool { return strings.HasPrefix(at, "/a") || at == "/n/y" || at == "/c" })
	ctx := context.Background()
	if err := p.Merge(ctx, Side{Base: base, Tree: theirs, Theirs: changes(t, base, theirs)}); err != nil {
		t.Fatal(err)
	}
	ops, err := p.Ops(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := base.apply(t, ops)
	if d := cmp.Diff(tree("/a d\n/a/x f 1\n/b f\n/n d\n/n/y f\n/c d\n/c/kept f").print(), got.print()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"/c directory", "/n directory resolved", "/n/y directory resolved"}, conflictsOf(p)); d != "" {
		t.Errorf("conflicts (-want +got):\n%s", d)
	}
}

// TestRenamedDirectory takes a directory and all below to another place.
func TestRenamedDirectory(t *testing.T) {
	base := tree("/old d\n/old/a f a\n/old/b f b")
	theirs := maps.Clone(base)
	for _, n := range []string{"", "/a", "/b"} {
		theirs["/new"+n] = theirs["/old"+n]
		delete(theirs, "/old"+n)
	}
	f := *theirs["/new/a"]
	f.Content, f.Size = bytesOf("A"), 1
	theirs["/new/a"] = &f
	theirs["/new/c"] = file(0o644, "c")
	delete(theirs, "/new/b")
	theirs["/new"] = dir(0o700)
	theirs["/new"].Inode = base["/old"].Inode
	ctx := context.Background()
	ours := maps.Clone(base)
	ours["/other"] = file(0o644, "")
	got, p := merged(t, Leave, base, ours, theirs)
	want := maps.Clone(theirs)
	want["/other"] = ours["/other"]
	if d := cmp.Diff(want.plain(), got.plain()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	ops, err := p.Ops(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var did []string
	for _, o := range ops {
		did = append(did, fmt.Sprint(o.Kind, o.Path, o.From))
	}
	if d := cmp.Diff([]string{
		fmt.Sprint(Take, "/old"), fmt.Sprint(Place, "/new", "/old"), fmt.Sprint(Remove, "/new/b"), fmt.Sprint(Remove, "/new/a"), fmt.Sprint(Create, "/new/a"),
		fmt.Sprint(Create, "/new/c"), fmt.Sprint(SetAttrs, "/new"),
	}, did); d != "" {
		t.Errorf("operations (-want +got):\n%s", d)
	}
	applied, err := p.Applied(ctx)
	if err != nil {
		t.Fatal(err)
	}
	did = nil
	for _, a := range applied {
		did = append(did, fmt.Sprint(a.Path, a.OldPath, a.Old != nil, a.New != nil, a.From))
	}
	if d := cmp.Diff([]string{"/new/oldtrue true0", "/new/atrue true0", "/new/btrue false0", "/new/cfalse true0"}, did); d != "" {
		t.Errorf("applied (-want +got):\n%s", d)
	}
	// We renamed it too, to somewhere else, and they changed a file in it.
	theirs = tree("/old d\n/old/a f changed\n/old/b f b")
	ours = maps.Clone(base)
	for _, n := range []string{"", "/a", "/b"} {
		ours["/ours"+n] = ours["/old"+n]
		delete(ours, "/old"+n)
	}
	p = New(ours, Leave, func(string) bool { return true })
	side := Side{Base: base, Tree: theirs, Theirs: []Change{{Path: "/old/a"}}, Ours: []Change{{Path: "/ours", From: "/old", Renamed: true}}}
	if err := p.Merge(ctx, side); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"/old/a deleted"}, conflictsOf(p)); d != "" {
		t.Errorf("conflicts (-want +got):\n%s", d)
	}
}

// TestHunks keeps what is in conflict of a text, each part as one piece, and nothing
// of what is not.
func TestHunks(t *testing.T) {
	base, ours, theirs := tree("/a f 1|2|3|4|5|6|7|"), tree("/a f 0|1|b|3|4|5|o|O|7|"), tree("/a f 1|t|T|3|4|5|7|8|")
	_, p := merged(t, Leave, base, ours, theirs)
	want := []Hunk{
		{Base: Lines{1, "2\n"}, Ours: Lines{2, "b\n"}, Theirs: Lines{1, "t\nT\n"}},
		{Base: Lines{5, "6\n"}, Ours: Lines{6, "o\nO\n"}, Theirs: Lines{6, ""}},
	}
	if c := p.Conflicts(); len(c) != 1 || !slices.Equal(c[0].Hunks, want) {
		t.Errorf("conflicts: %+v", c)
	}
	ours["/a"] = file(0o644, "0\n1\n2\n3\n4\n5\n6\n7\n")
	theirs["/a"] = file(0o600, "1\n2\n3\n4\n5\n6\n7\n8\n")
	if _, p := merged(t, Leave, base, ours, theirs); len(p.Conflicts()) > 0 {
		t.Errorf("conflicts: %+v", p.Conflicts())
	}
}
