package main

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"ramet.dev/ramet/internal/cli"
)

var update = flag.Bool("update", false, "write the documents that are generated")

// TestReferenceIsCurrent compares docs/cli.md with the commands.
func TestReferenceIsCurrent(t *testing.T) {
	const file = "../../docs/cli.md"
	want, err := cli.Reference(deps())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := cli.Reference(deps()); err != nil || !bytes.Equal(again, want) {
		t.Errorf("the reference is another one each time: %v", err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/cli.md is not that of the commands: run make docs")
	}
}
