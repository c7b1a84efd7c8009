package node

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/launch/launchtest"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/nodetest"
)

// TestStatsAgreeWithQuotas has a sentry without a control group, whose child used
// processor time as the processes do that guest code runs in. Statistics and the ledger
// of quotas count it alike.
func TestStatsAgreeWithQuotas(t *testing.T) {
	m, b := nodeOf(t, nil)
	// Both live until they are killed; the child says that it has worked.
	cmd := exec.Command("/bin/sh", "-c", "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo worked; exec sleep infinity' & exec sleep infinity")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s := launchtest.NewIn(t, cmd, func(*os.Process, *launch.Sentry, *wire.Call) (any, error) { return wire.Info{}, nil })
	b.Give(s, nil)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, ok := m.books.Book(b, s); !ok {
		t.Fatal("nothing was booked")
	}
	st, err := m.Stats(nodetest.AsOwner, b.ID)
	if err != nil {
		t.Fatal(err)
	}
	booked, _ := m.ledger.Spent(b.Tenant(), b.ID)
	const work, rounding = 0.02, 0.05 // seconds: less than the loop takes, and more than two sleeping processes do
	if booked < work || st.CPUSeconds < booked || st.CPUSeconds > booked+rounding {
		t.Errorf("statistics say %v s, and %v s were booked", st.CPUSeconds, booked)
	}
}
