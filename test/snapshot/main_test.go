package snapshot

import (
	"os"
	"testing"

	"ramet.dev/ramet/test/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{
		Works: map[string]harness.Work{"snapshot": snapshotOnce, "sleep": sleepOnce, "step": stepOnce, "upload": uploadOnce},
	}))
}

func TestOrdinaryUser(t *testing.T) { harness.AsOrdinaryUser(t) }
