package dpkg

import "testing"

func TestExcluder(t *testing.T) {
	e := excluder(DefaultWithout)
	for _, tt := range []struct {
		path string
		dir  bool
		want bool
	}{
		{"usr/share/doc", true, false},
		{"usr/share/doc/x", true, true},
		{"usr/share/doc/x/y", false, true},
		{"usr/share/docs/x", false, false},
		{"usr/share/locale/locale.alias", false, false},
		{"usr/share/man/man1", true, false},
		{"usr/share/man/man1/x.1", false, true},
		{"var/cache/x", true, false},
		{"var/cache/x/y", false, true},
		{"etc/x", false, false},
	} {
		if got := e.drops(tt.path, tt.dir); got != tt.want {
			t.Errorf("drops(%q, %v) = %v", tt.path, tt.dir, got)
		}
	}
}
