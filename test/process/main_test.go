package process

import (
	"os"
	"testing"

	"ramet.dev/ramet/test/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{
		Programs: map[string]func([]string) int{"cli": cliMain},
	}))
}

func TestOrdinaryUser(t *testing.T) { harness.AsOrdinaryUser(t) }
