package process

import (
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestSettings writes files of /proc/sys as set-up scripts do: root may, others may not, and children inherit the values.
func TestSettings(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	values := map[string]string{
		"fs/inotify/max_user_watches": "524288", "fs/inotify/max_user_instances": "512", "fs/file-max": "2097152", "vm/max_map_count": "262144",
		"vm/overcommit_memory": "1", "net/core/somaxconn": "4096", "kernel/shmmax": "68719476736", "net/ipv4/ip_local_port_range": "20000 30000",
		"kernel/sem": "250\t256000\t32\t1024", "vm/swappiness": "1", "net/ipv4/tcp_keepalive_time": "600",
	}
	check := func(ref string) {
		t.Helper()
		for name, want := range values {
			if got := strings.TrimSpace(n.Guest(ref, "say", "file:/proc/sys/"+name)); got != want {
				t.Errorf("%s: %s is %q, not %q", ref, name, got, want)
			}
		}
	}
	for name, value := range values {
		n.Guest("box", "write", "/proc/sys/"+name, value)
	}
	check("box")
	out, err := n.Run("box", api.ExecRequest{Argv: []string{"guest", "write", "/proc/sys/vm/swappiness", "2"}, User: "worker"}, "")
	if err != nil || out.OK {
		t.Errorf("another user writes: %+v, %v", out, err)
	}
	if out, err = n.Exec("box", "write", "/proc/sys/vm/swappiness", "many"); err != nil || out.OK {
		t.Errorf("a text is taken for a number: %+v, %v", out, err)
	}
	check(n.Fork("box", 1)[0].ID)
	n.Hibernate("box")
	check("box")
}
