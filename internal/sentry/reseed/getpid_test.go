package reseed

import "testing"

// TestForkID checks that answers are no process ids, and no two the same.
func TestForkID(t *testing.T) {
	seen := map[uintptr]bool{}
	for n := uint32(1); n <= 1<<14; n++ {
		for _, pid := range []uintptr{1, 2, 300, 1<<16 - 1} {
			id := forkID(n, pid)
			if id < noPID || id >= 1<<31 || seen[id] {
				t.Fatalf("generation %d tells process %d %#x", n, pid, id)
			}
			seen[id] = true
		}
	}
}
