package fsview

import "testing"

// TestMergeBase finds the last point that two histories have in common.
func TestMergeBase(t *testing.T) {
	p := func(freeze, line string, seq int64) ForkPoint { return ForkPoint{Freeze: freeze, Line: line, Seq: seq} }
	now := func(line string) ForkPoint { return p("", line, 1<<62) }
	for name, c := range map[string]struct {
		a, b []ForkPoint
		want string
	}{
		"strangers":                {[]ForkPoint{now("x")}, []ForkPoint{now("y")}, ""},
		"parent and child":         {[]ForkPoint{now("x")}, []ForkPoint{p("f", "x", 1), now("y")}, "f"},
		"parent and grandchild":    {[]ForkPoint{now("x")}, []ForkPoint{p("f", "x", 1), p("g", "y", 1), now("z")}, "f"},
		"siblings of one fork":     {[]ForkPoint{p("f", "x", 1), now("y")}, []ForkPoint{p("f", "x", 1), now("z")}, "f"},
		"siblings of two forks":    {[]ForkPoint{p("f", "x", 1), now("y")}, []ForkPoint{p("g", "x", 2), now("z")}, "f"},
		"nephew":                   {[]ForkPoint{p("f", "x", 1), p("h", "y", 5), now("w")}, []ForkPoint{p("g", "x", 2), now("z")}, "f"},
		"a snapshot and what is":   {[]ForkPoint{now("x")}, []ForkPoint{p("s", "x", 3)}, "s"},
		"a snapshot and a restore": {[]ForkPoint{p("s", "x", 3)}, []ForkPoint{p("s", "x", 3), now("y")}, "s"},
		"two snapshots":            {[]ForkPoint{p("s", "x", 3)}, []ForkPoint{p("t", "x", 4)}, "s"},
		"cousins":                  {[]ForkPoint{p("f", "x", 1), p("g", "y", 1), now("a")}, []ForkPoint{p("f", "x", 1), p("h", "z", 1), now("b")}, "f"},
	} {
		for _, pair := range [][2][]ForkPoint{{c.a, c.b}, {c.b, c.a}} {
			if got, ok := MergeBase(pair[0], pair[1]); got.Freeze != c.want || ok != (c.want != "") {
				t.Errorf("%s: %q, %v", name, got.Freeze, ok)
			}
		}
	}
}
