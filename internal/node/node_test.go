package node

import (
	"os"
	"testing"

	"ramet.dev/ramet/internal/engine/launch"
)

// TestMain lets the test binary be what the launcher starts to see whether it
// can make namespaces.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "version" {
		return
	}
	m.Run()
}

func TestDefaultPoolSize(t *testing.T) {
	for _, c := range []struct {
		memory uint64
		want   launch.PoolSize
	}{{0, launch.PoolSize{Least: 8, Most: 8}}, {2 << 30, launch.PoolSize{Least: 8, Most: 14}}, {8 << 30, launch.PoolSize{Least: 11, Most: 58}},
		{24 << 30, launch.PoolSize{Least: 32, Most: 128}}, {1 << 40, launch.PoolSize{Least: 32, Most: 128}}} {
		if got := DefaultPoolSize(c.memory); got != c.want {
			t.Errorf("DefaultPoolSize(%d) = %+v, want %+v", c.memory, got, c.want)
		}
	}
}
