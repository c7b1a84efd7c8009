package node

import (
	"os"
	"testing"

	"ramet.dev/ramet/test/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{
		Works:    map[string]harness.Work{"use": useOnce},
		Programs: map[string]func([]string) int{"container": containerMain},
	}))
}

func TestOrdinaryUser(t *testing.T) { harness.AsOrdinaryUser(t) }
