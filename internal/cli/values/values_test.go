package values

import (
	"slices"
	"testing"

	"ramet.dev/ramet/api"
)

func TestParseMiB(t *testing.T) {
	for in, want := range map[string]int64{"": 0, "512M": 512, "512m": 512, "2G": 2048, "2GiB": 2048, "2gb": 2048, "1.5G": 1536, "1T": 1 << 20, "0.1M": 1} {
		if got, err := ParseMiB("memory", in); err != nil || got != want {
			t.Errorf("parseMiB(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"512", "M", "0M", "-1M", "1K", "NaNM", "InfG", "1e300T", "1 M x", "B", "iB"} {
		if got, err := ParseMiB("memory", in); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("parseMiB(%q) = %d, %v", in, got, err)
		}
	}
}

func TestChildNames(t *testing.T) {
	if got := ChildNames("p", 2); !slices.Equal(got, []string{"p-1", "p-2"}) {
		t.Errorf("childNames = %v", got)
	}
	if got := ChildNames("p", 1); !slices.Equal(got, []string{"p"}) {
		t.Errorf("childNames of one = %v", got)
	}
	if got := ChildNames("", 2); got != nil {
		t.Errorf("childNames without a prefix = %v", got)
	}
	if got := ChildNames("p", -1); len(got) != 0 {
		t.Errorf("childNames of a negative number = %v", got)
	}
}

func FuzzParseMiB(f *testing.F) {
	f.Add("512M")
	f.Add("0x1p-2G")
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ParseMiB("memory", s); err == nil && s != "" && (v < 1 || v > 1<<40) {
			t.Fatalf("parseMiB(%q) = %d", s, v)
		}
	})
}
