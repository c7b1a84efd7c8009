package control

import (
	"strings"
	"testing"
)

func TestParseRelations(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"libc6", "libc6"},
		{"libc6 (>= 2.36), libgcc-s1(>=3.0)", "libc6 (>= 2.36), libgcc-s1 (>= 3.0)"},
		{"a1 | b1 (<< 2) | c1:any , d1,", "a1 | b1 (<< 2) | c1:any, d1"},
		{"a1 (< 1), b1 (> 2), c1 (= 1:3-4)", "a1 (<= 1), b1 (>= 2), c1 (= 1:3-4)"},
		{"a1\n (>= 1),\n b1", "a1 (>= 1), b1"},
		{"python3:any (>= 3.5~)", "python3:any (>= 3.5~)"},
	}
	for _, tt := range tests {
		got, err := ParseRelations(tt.in)
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		var parts []string
		for _, a := range got {
			parts = append(parts, a.String())
		}
		if s := strings.Join(parts, ", "); s != tt.want {
			t.Errorf("%q: got %q, want %q", tt.in, s, tt.want)
		}
	}
	for _, bad := range []string{"A", "a1 |", "a1 (2)", "a1 (>= )", "a1 (>= 1", "a1 (=> 1)", "a1 [amd64]", "a1:", "a1 (>= 1/2)"} {
		if got, err := ParseRelations(bad); err == nil {
			t.Errorf("%q: parsed as %v", bad, got)
		}
	}
}

func TestVersionOK(t *testing.T) {
	for rel, want := range map[string]string{ // which of 1, 2, 3 satisfy the relation
		"xx": "123", "xx (<< 2)": "1", "xx (<= 2)": "12", "xx (= 2)": "2", "xx (>= 2)": "23", "xx (>> 2)": "3",
	} {
		r, err := parseRelation(rel)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, v := range []string{"1", "2", "3"} {
			if r.VersionOK(v) {
				got += v
			}
		}
		if got != want {
			t.Errorf("%s: satisfied by %q, want %q", rel, got, want)
		}
	}
}

func FuzzParseRelations(f *testing.F) {
	for _, s := range []string{"", "a1", "a1 (>= 1) | b2:any, c3", "a1 (", "|,|", "x1 (<<\n1)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, err := ParseRelations(s)
		if err != nil {
			return
		}
		var parts []string
		for _, a := range first {
			parts = append(parts, a.String())
		}
		text := strings.Join(parts, ", ")
		second, err := ParseRelations(text)
		if err != nil || len(second) != len(first) {
			t.Fatalf("%q printed as %q, which reads as %v, %v", s, text, second, err)
		}
	})
}
