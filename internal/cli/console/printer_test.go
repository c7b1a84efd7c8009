package console

import (
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m", 90 * time.Minute: "1h", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := Age(now.Add(-d), now); got != want {
			t.Errorf("age of %s = %q, want %q", d, got, want)
		}
	}
	if got := Age(time.Time{}, now); got != "" {
		t.Errorf("age of no time = %q", got)
	}
}

func TestByteSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 20: "3.0 MiB", 5 << 29: "2.5 GiB"} {
		if got := ByteSize(n); got != want {
			t.Errorf("byteSize(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestSizeChange(t *testing.T) {
	for want, n := range map[string][2]int64{
		"2.0 KiB → 12 B":              {2048, 12},
		"3000 B → 3010 B":             {3000, 3010},
		"1048576 B → 1048577 B":       {1 << 20, 1<<20 + 1},
		"1.0 MiB → 1.1 MiB":           {1 << 20, 1<<20 + 1<<17},
		"1073741825 B → 1073741824 B": {1<<30 + 1, 1 << 30},
	} {
		if got := SizeChange(n[0], n[1]); got != want {
			t.Errorf("sizeChange(%d, %d) = %q, want %q", n[0], n[1], got, want)
		}
	}
}
