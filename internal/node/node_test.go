package node

import (
	"os"
	"reflect"
	"slices"
	"testing"

	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/service"
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

// TestNodeOffersServices finds methods of the node that no server calls: parts that are embedded
// would give it theirs.
func TestNodeOffersServices(t *testing.T) {
	offered, node := reflect.TypeFor[service.Service](), reflect.TypeFor[*Node]()
	own := []string{"Close", "Usage", "LineageID", "SandboxID"} // the last two are token.Bindings
	for i := range node.NumMethod() {
		name := node.Method(i).Name
		if _, ok := offered.MethodByName(name); !ok && !slices.Contains(own, name) {
			t.Errorf("%s is a method of the node", name)
		}
	}
}
