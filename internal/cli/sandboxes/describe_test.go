package sandboxes

import (
	"testing"

	"ramet.dev/ramet/api"
)

func TestLimitsAreThoseThatThereAre(t *testing.T) {
	for _, c := range []struct {
		limits api.Limits
		want   string
	}{
		{api.Limits{}, ""},
		{api.Limits{CPUs: 0.5, Pids: 20}, "0.5 cpus, 20 pids"},
		{api.Limits{CPUs: 2, MemoryMiB: 512, DiskMiB: 1024, Pids: 100, OpenFiles: 64}, "2 cpus, 512 MiB memory, 1024 MiB disk, 100 pids, 64 open files"},
	} {
		if got := limitsOf(c.limits, ""); got != c.want {
			t.Errorf("%+v: %q, want %q", c.limits, got, c.want)
		}
	}
}
