package fs

import (
	"os"
	"testing"

	"ramet.dev/ramet/test/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{}))
}

func TestOrdinaryUser(t *testing.T) { harness.AsOrdinaryUser(t) }
