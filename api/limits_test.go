package api

import (
	"math"
	"strings"
	"testing"
)

func TestLimitsHaveBounds(t *testing.T) {
	here := Machine{CPUs: 2, MemoryMiB: 1000}
	for _, l := range []Limits{
		{},
		{CPUs: minCPUs, MemoryMiB: minMemoryMiB, DiskMiB: 1, Pids: 1, OpenFiles: minOpenFiles},
		{CPUs: 2, MemoryMiB: 4000, DiskMiB: maxMiB, Pids: maxPids, OpenFiles: maxOpenFiles},
	} {
		if err := l.ValidOn(here); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for text, l := range map[string]Limits{
		"limits.cpus: -1 is not 0 (no limit) or from 0.01 to 2, which this machine has":                                 {CPUs: -1},
		"limits.cpus: 0.001 is not 0 (no limit) or from 0.01 to 2, which this machine has":                              {CPUs: 0.001},
		"limits.cpus: 2.5 is not 0 (no limit) or from 0.01 to 2, which this machine has":                                {CPUs: 2.5},
		"limits.cpus: NaN is not 0 (no limit) or from 0.01 to 2, which this machine has":                                {CPUs: math.NaN()},
		"limits.memory_mib: 15 MiB is not 0 (no limit) or from 16 to 4000 MiB, four times the memory of this machine":   {MemoryMiB: 15},
		"limits.memory_mib: -1 MiB is not 0 (no limit) or from 16 to 4000 MiB, four times the memory of this machine":   {MemoryMiB: -1},
		"limits.memory_mib: 4001 MiB is not 0 (no limit) or from 16 to 4000 MiB, four times the memory of this machine": {MemoryMiB: 4001},
		"limits.disk_mib: -1 MiB is not from 0 (no limit) to 16777216 MiB":                                              {DiskMiB: -1},
		"limits.pids: 4194305 is not from 0 (no limit) to 4194304":                                                      {Pids: maxPids + 1},
		"limits.open_files: 63 is not 0 (the default) or from 64 to 1048576":                                            {OpenFiles: 63},
		"limits.open_files: -64 is not 0 (the default) or from 64 to 1048576":                                           {OpenFiles: -64},
		"limits.open_files: 1048577 is not 0 (the default) or from 64 to 1048576":                                       {OpenFiles: 1<<20 + 1},
		"limits.open_files: -9223372036854775808 is not 0 (the default) or from 64 to 1048576":                          {OpenFiles: math.MinInt64},
	} {
		if err := l.ValidOn(here); CodeOf(err) != CodeInvalid || err.Error() != text {
			t.Errorf("%+v: %v, want %s", l, err, text)
		}
	}
	small := Machine{CPUs: 1, DiskMiB: 100}
	if err := (Limits{DiskMiB: 400}).ValidOn(small); err != nil {
		t.Error(err)
	}
	err := Limits{DiskMiB: 401}.ValidOn(small)
	if want := "limits.disk_mib: 401 MiB is not from 0 (no limit) to 400 MiB, four times the file system that files of sandboxes are on"; CodeOf(err) != CodeInvalid || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for _, m := range []Machine{{CPUs: 1}, {CPUs: 1, MemoryMiB: 1 << 40}} { // unknown, or larger than a sandbox can be
		if err := (Limits{MemoryMiB: maxMiB}).ValidOn(m); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
		if err := (Limits{DiskMiB: maxMiB}).ValidOn(m); err != nil {
			t.Errorf("%+v: %v", m, err)
		}
		if err := (Limits{MemoryMiB: maxMiB + 1}).ValidOn(m); CodeOf(err) != CodeInvalid || !strings.HasSuffix(err.Error(), "to 16777216 MiB") {
			t.Errorf("%+v: %v", m, err)
		}
	}
}
