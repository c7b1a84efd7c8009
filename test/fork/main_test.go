package fork

import (
	"os"
	"testing"

	"ramet.dev/ramet/test/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{
		Works: map[string]harness.Work{"fork": forkOnce, "explore": exploreOnce},
	}))
}

func TestOrdinaryUser(t *testing.T) { harness.AsOrdinaryUser(t) }
