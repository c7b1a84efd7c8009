package processes

import (
	"errors"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli/describe"
)

func TestLongCommandsAreCut(t *testing.T) {
	ps := []api.Process{{PID: 1, Command: strings.Repeat("é", describe.MaxCommand)}, {PID: 2, Command: strings.Repeat("x", describe.MaxCommand) + "end"}}
	var cut, whole strings.Builder
	if err := errors.Join(processTable(ps, time.Now(), false)(&cut), processTable(ps, time.Now(), true)(&whole)); err != nil {
		t.Fatal(err)
	}
	if s := cut.String(); !strings.Contains(s, ps[0].Command) || strings.Contains(s, "end") || !strings.Contains(s, strings.Repeat("x", describe.MaxCommand-1)+"…\n") {
		t.Errorf("cut:\n%s", s)
	}
	if s := whole.String(); !strings.Contains(s, ps[1].Command) {
		t.Errorf("whole:\n%s", s)
	}
}
