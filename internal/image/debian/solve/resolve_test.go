package solve

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ramet.dev/ramet/internal/image/debian/archive"
	"ramet.dev/ramet/internal/image/debian/control"
	"ramet.dev/ramet/internal/image/debian/fault"
)

// testUniverse reads packages from short stanzas; fields that resolving does not use are
// filled in.
func testUniverse(t *testing.T, text string) *Universe {
	t.Helper()
	var full strings.Builder
	r := control.NewReader("test", strings.NewReader(text))
	for {
		st, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		full.WriteString(strings.TrimRight(string(st.Raw), "\n"))
		full.WriteString("\nFilename: pool/x.deb\nSize: 1\nSHA256: " + strings.Repeat("0", 64) + "\n")
		for field, value := range map[string]string{"Version": "1", "Architecture": "amd64"} {
			if st.Get(field) == "" {
				full.WriteString(field + ": " + value + "\n")
			}
		}
		full.WriteString("\n")
	}
	pkgs, err := archive.ParseIndex("test", strings.NewReader(full.String()), nil, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	u, err := NewUniverse("amd64", "test", pkgs)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestResolve(t *testing.T) {
	tests := []struct {
		name, universe string
		include        []string
		want           string // in order of unpacking
	}{
		{
			name:     "essential only, dependencies first",
			universe: "Package: aa\nEssential: yes\nDepends: zz\n\nPackage: zz\nPre-Depends: mm\n\nPackage: mm\n\nPackage: other\n",
			want:     "mm zz aa",
		},
		{
			name:     "base packages lead",
			universe: "Package: aa\nEssential: yes\n\nPackage: base-files\nEssential: yes\n\nPackage: base-passwd\nEssential: yes\nDepends: libx\n\nPackage: libx\n",
			want:     "libx base-passwd base-files aa",
		},
		{
			name:     "netbase, if there is one",
			universe: "Package: aa\nEssential: yes\n\nPackage: netbase\n\nPackage: other\n",
			want:     "aa netbase",
		},
		{
			name:     "first alternative",
			universe: "Package: aa\nDepends: bb | cc\n\nPackage: bb\n\nPackage: cc\n",
			include:  []string{"aa"}, want: "bb aa",
		},
		{
			name:     "selected alternative preferred, even when it is selected later",
			universe: "Package: aa\nDepends: bb | cc\n\nPackage: bb\n\nPackage: cc\n\nPackage: dd\nDepends: cc\n",
			include:  []string{"aa", "dd"}, want: "cc aa dd",
		},
		{
			name:     "missing or too old alternative skipped",
			universe: "Package: aa\nDepends: nope | bb (>= 2) | cc\n\nPackage: bb\n\nPackage: cc\n",
			include:  []string{"aa"}, want: "cc aa",
		},
		{
			name:     "provider by priority, then name",
			universe: "Package: aa\nDepends: virt\n\nPackage: bb\nProvides: virt\nPriority: optional\n\nPackage: dd\nProvides: virt\nPriority: required\n\nPackage: ee\nProvides: virt\nPriority: required\n",
			include:  []string{"aa"}, want: "dd aa",
		},
		{
			name:     "versioned relation needs versioned provides",
			universe: "Package: aa\nDepends: virt (>= 2)\n\nPackage: bb\nProvides: virt\n\nPackage: cc\nProvides: virt (= 1)\n\nPackage: dd\nProvides: virt (= 3)\n",
			include:  []string{"aa"}, want: "dd aa",
		},
		{
			name:     "alternative that conflicts is avoided",
			universe: "Package: aa\nDepends: bb | cc\n\nPackage: bb\n\nPackage: cc\n\nPackage: dd\nConflicts: bb\n",
			include:  []string{"dd", "aa"}, want: "cc aa dd",
		},
		{
			name:     "circle",
			universe: "Package: aa\nDepends: bb\n\nPackage: bb\nDepends: aa\n",
			include:  []string{"bb", "aa"}, want: "bb aa",
		},
		{
			name:     "merged marker instead of the converter",
			universe: "Package: aa\nEssential: yes\nDepends: usrmerge | usr-is-merged\n\nPackage: usrmerge\n\nPackage: usr-is-merged\n",
			want:     "usr-is-merged aa",
		},
		{
			name:     "include of a virtual package, qualifiers",
			universe: "Package: aa\nProvides: virt\nDepends: bb:any, cc:amd64\n\nPackage: bb\n\nPackage: cc\n",
			include:  []string{"virt"}, want: "bb cc aa",
		},
		{
			name:     "a package may conflict with what it provides itself",
			universe: "Package: aa\nProvides: virt\nConflicts: virt\n",
			include:  []string{"aa"}, want: "aa",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Resolve(testUniverse(t, tt.universe), tt.include)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range s.Order() {
				got = append(got, p.Name)
			}
			if list := strings.Join(got, " "); list != tt.want {
				t.Errorf("got %q, want %q", list, tt.want)
			}
		})
	}
}

func TestResolveMissing(t *testing.T) {
	u := testUniverse(t, "Package: aa\nDepends: bb\n\nPackage: bb\nDepends: cc (>= 2) | dd\n\nPackage: cc\n")
	_, err := Resolve(u, []string{"aa"})
	var e *fault.DependencyError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a DependencyError", err)
	}
	want := &fault.DependencyError{
		Wanted: "cc (>= 2) | dd", By: []string{"bb", "aa"},
		Reason: "suite test has only cc 1; suite test has no package dd for amd64",
	}
	if d := cmp.Diff(want, e); d != "" {
		t.Error(d)
	}
	if _, err = Resolve(u, []string{"unknown"}); !errors.As(err, &e) || e.Wanted != "unknown" || len(e.By) != 0 {
		t.Errorf("unknown include: got %v", err)
	}
}

func TestResolveConflict(t *testing.T) {
	for _, field := range []string{"Conflicts", "Breaks"} {
		u := testUniverse(t, "Package: aa\n"+field+": bb (<< 2)\n\nPackage: bb\n\nPackage: cc\n"+field+": bb (>> 2)\n")
		var e *fault.ConflictError
		if _, err := Resolve(u, []string{"aa", "bb"}); !errors.As(err, &e) {
			t.Fatalf("%s: got %v, want a ConflictError", field, err)
		}
		if want := (fault.ConflictError{Package: "aa", With: "bb", Field: field, Relation: "bb (<< 2)"}); *e != want {
			t.Errorf("got %+v, want %+v", *e, want)
		}
		if _, err := Resolve(u, []string{"bb", "cc"}); err != nil {
			t.Errorf("%s of another version: %v", field, err)
		}
	}
}

func TestPlan(t *testing.T) {
	u := testUniverse(t, `Package: aa
Essential: yes
Depends: libx

Package: libx
Multi-Arch: same

Package: user
Pre-Depends: helper

Package: helper
Depends: libx, libhelper

Package: libhelper

Package: plain
`)
	s, err := Resolve(u, []string{"user", "plain"})
	if err != nil {
		t.Fatal(err)
	}
	scripts := []string{"aa", "user"}
	got := s.Plan(s.Order(), func(p *archive.Package) bool { return slices.Contains(scripts, p.Name) })
	want := "configure aa libx:amd64\nconfigure helper libhelper\npreinst user\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
