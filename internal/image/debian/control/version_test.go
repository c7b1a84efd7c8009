package control

import "testing"

func TestCompareVersions(t *testing.T) {
	// Each version sorts before the next one.
	ascending := []string{
		"0~~", "0~~a", "0~", "0", "0a", "0+", "0.1", "1~rc1", "1~rc1-1", "1", "1-1~bpo1", "1-1", "1-1+b1", "1-1.1",
		"1-2", "1a", "1a1", "1ab", "1+dfsg-1", "1.0.1", "1.0.a", "1.0.+", "1.2", "1.10", "1.10-1",
		"2.36-9+deb12u9", "2.36-9+deb12u13", "99999999999999999999999", "100000000000000000000000",
		"1:0~", "1:0", "1:1-1", "2:0", "10:0",
	}
	for i, a := range ascending {
		for j, b := range ascending {
			want := sign(i - j)
			if got := CompareVersions(a, b); got != want {
				t.Errorf("CompareVersions(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestCompareVersionsEqual(t *testing.T) {
	for _, pair := range [][2]string{
		{"1", "1-0"}, {"1", "0:1"}, {"1.0", "1.00"}, {"01.2", "1.2"}, {"1-1", "1-01"}, {"", "0"}, {"1.", "1.0"}, {"00:1", "1"},
	} {
		if got := CompareVersions(pair[0], pair[1]); got != 0 {
			t.Errorf("CompareVersions(%q, %q) = %d, want 0", pair[0], pair[1], got)
		}
	}
}

func FuzzCompareVersions(f *testing.F) {
	for _, v := range []string{"", "1", "1:2-3", "~", "1~rc1", "a-", "0:0", "-", ":", "1.2.3+b1"} {
		f.Add(v, "1.0-1", "2")
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		ab, bc, ac := CompareVersions(a, b), CompareVersions(b, c), CompareVersions(a, c)
		if CompareVersions(a, a) != 0 {
			t.Fatalf("%q differs from itself", a)
		}
		if CompareVersions(b, a) != -ab {
			t.Fatalf("order of %q and %q depends on the side", a, b)
		}
		if ab <= 0 && bc <= 0 && ac > 0 || ab >= 0 && bc >= 0 && ac < 0 {
			t.Fatalf("no order among %q, %q, %q", a, b, c)
		}
	})
}
