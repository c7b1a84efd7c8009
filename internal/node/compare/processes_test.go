package compare

import (
	"reflect"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

func TestCompareProcesses(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	of := func(pid int, after time.Duration, command string) api.Process {
		return api.Process{PID: pid, PPID: 1, UID: 7, Command: command, StartedAt: at.Add(after)}
	}
	busy := of(2, 0, "same")
	busy.CPUSeconds, busy.MemoryMiB, busy.State, busy.StartedAt = 5, 9, "running", busy.StartedAt.Local()
	got := compareProcesses(
		[]api.Process{of(2, 0, "same"), of(3, 0, "sh"), of(4, 1, "gone"), of(5, 1, "one of that id")},
		[]api.Process{busy, of(3, 0, "python3"), of(5, 2, "another"), of(9, 3, "new")},
	)
	want := []api.ProcessChange{
		{PID: 3, PPID: 1, UID: 7, Kind: api.Modified, Command: "python3", OldCommand: "sh"},
		{PID: 4, PPID: 1, UID: 7, Kind: api.Deleted, Command: "gone"},
		{PID: 5, PPID: 1, UID: 7, Kind: api.Deleted, Command: "one of that id"},
		{PID: 5, PPID: 1, UID: 7, Kind: api.Added, Command: "another"},
		{PID: 9, PPID: 1, UID: 7, Kind: api.Added, Command: "new"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, not %+v", got, want)
	}
	if got := compareProcesses(nil, nil); got == nil || len(got) != 0 { // [] and not null
		t.Errorf("no processes differ by %#v", got)
	}
}
