package cli

import (
	"slices"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

func TestParseMiB(t *testing.T) {
	for in, want := range map[string]int64{"": 0, "512M": 512, "512m": 512, "2G": 2048, "2GiB": 2048, "2gb": 2048, "1.5G": 1536, "1T": 1 << 20, "0.1M": 1} {
		if got, err := parseMiB("memory", in); err != nil || got != want {
			t.Errorf("parseMiB(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"512", "M", "0M", "-1M", "1K", "NaNM", "InfG", "1e300T", "1 M x", "B", "iB"} {
		if got, err := parseMiB("memory", in); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("parseMiB(%q) = %d, %v", in, got, err)
		}
	}
}

func TestChildNames(t *testing.T) {
	if got := childNames("p", 2); !slices.Equal(got, []string{"p-1", "p-2"}) {
		t.Errorf("childNames = %v", got)
	}
	if got := childNames("p", 1); !slices.Equal(got, []string{"p"}) {
		t.Errorf("childNames of one = %v", got)
	}
	if got := childNames("", 2); got != nil {
		t.Errorf("childNames without a prefix = %v", got)
	}
	if got := childNames("p", -1); len(got) != 0 {
		t.Errorf("childNames of a negative number = %v", got)
	}
}

func TestAge(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 90 * time.Minute: "1h", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := age(now.Add(-d), now); got != want {
			t.Errorf("age of %s = %q, want %q", d, got, want)
		}
	}
	if got := age(time.Time{}, now); got != "" {
		t.Errorf("age of no time = %q", got)
	}
}

func TestByteSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 20: "3.0 MiB", 5 << 29: "2.5 GiB"} {
		if got := byteSize(n); got != want {
			t.Errorf("byteSize(%d) = %q, want %q", n, got, want)
		}
	}
}

func FuzzParseMiB(f *testing.F) {
	f.Add("512M")
	f.Add("0x1p-2G")
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := parseMiB("memory", s); err == nil && s != "" && (v < 1 || v > 1<<40) {
			t.Fatalf("parseMiB(%q) = %d", s, v)
		}
	})
}

func TestSizeChange(t *testing.T) {
	for want, n := range map[string][2]int64{
		"2.0 KiB → 12 B":              {2048, 12},
		"3000 B → 3010 B":             {3000, 3010},
		"1048576 B → 1048577 B":       {1 << 20, 1<<20 + 1},
		"1.0 MiB → 1.1 MiB":           {1 << 20, 1<<20 + 1<<17},
		"1073741825 B → 1073741824 B": {1<<30 + 1, 1 << 30},
	} {
		if got := sizeChange(n[0], n[1]); got != want {
			t.Errorf("sizeChange(%d, %d) = %q, want %q", n[0], n[1], got, want)
		}
	}
}
