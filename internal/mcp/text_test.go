package mcp

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBounded(t *testing.T) {
	for _, size := range []int{0, 1, half, half + 1, maxText, maxText + 1, 10 * maxText} {
		for _, step := range []int{1 << 20, 1000, 7} {
			all := strings.Repeat("0123456789", size/10+1)[:size]
			var b bounded
			for rest := all; rest != ""; {
				n := min(step, len(rest))
				if m, err := b.Write([]byte(rest[:n])); m != n || err != nil {
					t.Fatalf("wrote %d of %d: %v", m, n, err)
				}
				rest = rest[n:]
			}
			text := b.String()
			if size <= maxText && text != all {
				t.Errorf("%d bytes in steps of %d: %d come back", size, step, len(text))
			}
			if size > maxText && (!strings.HasPrefix(text, all[:half]+"\n…") || !strings.HasSuffix(text, "…\n"+all[size-half:]) || len(text) > maxText+100) {
				t.Errorf("%d bytes in steps of %d: %d come back", size, step, len(text))
			}
		}
	}
}

// TestCut cuts between characters.
func TestCut(t *testing.T) {
	for most := range 8 {
		got, was := cut("aä€", most)
		if !utf8.ValidString(got) || !strings.HasPrefix("aä€", got) || was != (most < 6) || len(got) > most {
			t.Errorf("cut to %d: %q, %v", most, got, was)
		}
	}
}

func FuzzSplit(f *testing.F) {
	for _, uri := range []string{"ramet://s/files/etc/passwd", "ramet://s/processes/1/output", "ramet://tree", "ramet://s%2Fx/logs", "ramet:///files", "http://s/files", "ramet://s/files/%zz", "ramet://s/files/../x", "ramet://s/files//x"} {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		ref, parts, ok := split(uri)
		if ok && (ref == "" || len(parts) == 0) {
			t.Errorf("%q has no sandbox or no path: %q %q", uri, ref, parts)
		}
	})
}

// TestAddresses makes addresses that are understood.
func TestAddresses(t *testing.T) {
	for _, path := range []string{"/etc/passwd", "/a b", "/ä/%41", "/a?b#c", "/a/"} {
		ref, parts, ok := split(fileURI("sbx_x", path))
		if !ok || ref != "sbx_x" || parts[0] != "files" || "/"+strings.Join(parts[1:], "/") != path {
			t.Errorf("%q becomes %q of %q", path, parts, ref)
		}
	}
	if ref, parts, ok := split(outputURI("s", 7)); !ok || ref != "s" || strings.Join(parts, "/") != "processes/7/output" {
		t.Errorf("an output is %q of %q", parts, ref)
	}
}
