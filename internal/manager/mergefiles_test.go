package manager

import (
	"context"
	"errors"
	"testing"

	"ramet.dev/ramet/internal/cowfs"
	"ramet.dev/ramet/internal/merge"
)

// TestMergeLinksAreBounded asks for the names of a file that claims to have many.
func TestMergeLinksAreBounded(t *testing.T) {
	files, err := cowfs.NewFiles(cowfs.OpenView(nil, 0), nil)
	if err != nil {
		t.Fatal(err)
	}
	tree := newMergeTree(files, &mergeBudget{})
	if _, err := tree.Names(context.Background(), &merge.File{Inode: 7, Links: maxMergeLinks + 1}); !errors.Is(err, cowfs.ErrLimit) {
		t.Errorf("many links: %v", err)
	}
	if names, err := tree.Names(context.Background(), &merge.File{Inode: 7, Links: 2}); err != nil || len(names) > 0 {
		t.Errorf("names of nothing are %q (%v)", names, err)
	}
}

// TestParting finds the last point that two histories have in common.
func TestParting(t *testing.T) {
	p := func(freeze, line string, seq int64) point { return point{Freeze: freeze, Line: line, Seq: seq} }
	now := func(line string) point { return p("", line, 1<<62) }
	for name, c := range map[string]struct {
		a, b []point
		want string
	}{
		"strangers":                {[]point{now("x")}, []point{now("y")}, ""},
		"parent and child":         {[]point{now("x")}, []point{p("f", "x", 1), now("y")}, "f"},
		"parent and grandchild":    {[]point{now("x")}, []point{p("f", "x", 1), p("g", "y", 1), now("z")}, "f"},
		"siblings of one fork":     {[]point{p("f", "x", 1), now("y")}, []point{p("f", "x", 1), now("z")}, "f"},
		"siblings of two forks":    {[]point{p("f", "x", 1), now("y")}, []point{p("g", "x", 2), now("z")}, "f"},
		"nephew":                   {[]point{p("f", "x", 1), p("h", "y", 5), now("w")}, []point{p("g", "x", 2), now("z")}, "f"},
		"a snapshot and what is":   {[]point{now("x")}, []point{p("s", "x", 3)}, "s"},
		"a snapshot and a restore": {[]point{p("s", "x", 3)}, []point{p("s", "x", 3), now("y")}, "s"},
		"two snapshots":            {[]point{p("s", "x", 3)}, []point{p("t", "x", 4)}, "s"},
		"cousins":                  {[]point{p("f", "x", 1), p("g", "y", 1), now("a")}, []point{p("f", "x", 1), p("h", "z", 1), now("b")}, "f"},
	} {
		for _, pair := range [][2][]point{{c.a, c.b}, {c.b, c.a}} {
			if got, ok := parting(pair[0], pair[1]); got.Freeze != c.want || ok != (c.want != "") {
				t.Errorf("%s: %q, %v", name, got.Freeze, ok)
			}
		}
	}
}
