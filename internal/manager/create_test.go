package manager

import (
	"math"
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

func TestLimitsHaveBounds(t *testing.T) {
	for _, l := range []sandbox.Limits{
		{},
		{CPUs: 0.1, MemoryMiB: minMemoryMiB, DiskMiB: 1, Pids: 1, OpenFiles: minOpenFiles},
		{CPUs: maxCPUs, MemoryMiB: maxMiB, DiskMiB: maxMiB, Pids: maxPids, OpenFiles: maxOpenFiles},
	} {
		if err := validLimits(l); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for text, l := range map[string]sandbox.Limits{
		"limits.cpus: -1 is not from 0 (no limit) to 1024":                                     {CPUs: -1},
		"limits.memory_mib: 15 MiB is not 0 (no limit) or from 16 to 16777216 MiB":             {MemoryMiB: 15},
		"limits.disk_mib: -1 MiB is not from 0 (no limit) to 16777216 MiB":                     {DiskMiB: -1},
		"limits.pids: 4194305 is not from 0 (no limit) to 4194304":                             {Pids: maxPids + 1},
		"limits.open_files: 63 is not 0 (the default) or from 64 to 1048576":                   {OpenFiles: 63},
		"limits.open_files: -64 is not 0 (the default) or from 64 to 1048576":                  {OpenFiles: -64},
		"limits.open_files: 1048577 is not 0 (the default) or from 64 to 1048576":              {OpenFiles: 1<<20 + 1},
		"limits.open_files: -9223372036854775808 is not 0 (the default) or from 64 to 1048576": {OpenFiles: math.MinInt64},
	} {
		if err := validLimits(l); sandbox.CodeOf(err) != sandbox.CodeInvalid || err.Error() != text {
			t.Errorf("%+v: %v, want %s", l, err, text)
		}
	}
}
