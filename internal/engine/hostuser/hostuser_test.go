package hostuser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const allUsers = "         0          0 4294967295\n"

// newRoot returns a directory with such files.
func newRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestFreeRange leaves one range of all to be chosen.
func TestFreeRange(t *testing.T) {
	const free = first + 17*RangeSize
	root := newRoot(t, map[string]string{
		"proc/self/uid_map": allUsers,
		"proc/self/gid_map": allUsers,
		"etc/passwd":        fmt.Sprintf("# the users\nroot:x:0:0:root:/root:/bin/sh\n+\nlast:x:%d:0::/:\n", free-1),
		"etc/group":         fmt.Sprintf("next:x:%d:\n", free+RangeSize),
		"etc/subuid":        fmt.Sprintf("lo:%d:%d\n", first-1000, 1000+16*RangeSize),
		"etc/subgid":        fmt.Sprintf("hi:%d:%d\n", free+3*RangeSize, int64(1)<<32-1),
		"proc/42/status":    fmt.Sprintf("Name:\tx\nUid:\t1\t1\t%d\t1\nGid:\t0\t0\t0\t0\nGroups:\t\n", free+3*RangeSize-2),
	})
	if got, err := FreeRange(root); err != nil || got != free {
		t.Errorf("the range is %#x, not %#x (%v)", got, free, err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/42/status"), fmt.Appendf(nil, "Uid:\t1\nGid:\t1\nGroups:\t5 %d \n", free+3), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := FreeRange(root); err != nil || got != free+2*RangeSize {
		t.Errorf("the range is %#x, not %#x (%v)", got, free+2*RangeSize, err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/subuid"), fmt.Appendf(nil, "all:0:%d\n", int64(1)<<32-1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := FreeRange(root); err == nil {
		t.Errorf("all are taken, but %#x was chosen", got)
	}
}

func TestRangesAreOthersEachTime(t *testing.T) {
	root := newRoot(t, map[string]string{"proc/self/uid_map": allUsers, "proc/self/gid_map": allUsers})
	seen := map[int]bool{}
	for range 20 {
		from, err := FreeRange(root)
		if err != nil || from < first || from > 1<<31-RangeSize || from%RangeSize != 0 {
			t.Fatalf("the range is %#x (%v)", from, err)
		}
		seen[from] = true
	}
	if len(seen) < 10 {
		t.Errorf("20 times only %d ranges were chosen", len(seen))
	}
}

// TestCheck has maps of containers.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		uids, gids string
		has        bool
	}{
		{allUsers, allUsers, true},
		{"0 100000 65536\n", "0 100000 65536\n", false},
		{allUsers, "0 100000 65536\n", false},
		{"0 1000 1\n1 100000 4000000000\n", allUsers, true},
		{"", allUsers, false},
	} {
		root := newRoot(t, map[string]string{"proc/self/uid_map": c.uids, "proc/self/gid_map": c.gids})
		if err := check(root); (err == nil) != c.has {
			t.Errorf("uids %q, gids %q: %v", c.uids, c.gids, err)
		}
		if _, err := FreeRange(root); !c.has && (err == nil || !strings.Contains(err.Error(), "container")) {
			t.Errorf("uids %q, gids %q: a range was chosen, or %v", c.uids, c.gids, err)
		}
	}
}
