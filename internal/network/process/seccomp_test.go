package process

import (
	"slices"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
)

// TestCallsAreKnown has the library know each call of the filter by name on this architecture, and those that all
// architectures have on the other one, too.
func TestCallsAreKnown(t *testing.T) {
	var conditions []string
	for _, c := range append(narrowed, reading) {
		conditions = append(conditions, c.Name)
	}
	for machine, names := range map[string][]string{
		"":        slices.Concat(calls, archCalls, holding, conditions),
		"x86_64":  slices.Concat(calls, holding, conditions),
		"aarch64": slices.Concat(calls, holding, conditions),
	} {
		info, err := arch.GetInfo(machine)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if _, ok := info.SyscallNames[name]; !ok {
				t.Errorf("%s has no system call %s", info.Name, name)
			}
		}
	}
}
