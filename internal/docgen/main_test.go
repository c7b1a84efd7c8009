package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

func TestCommittedDocumentsAreThoseOfTheCode(t *testing.T) {
	docs, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range docs {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code says: run make docs (line %s)", path, firstDifference(got, want))
		}
	}
}

// firstDifference returns the first line of want that is not in its place in got.
func firstDifference(got, want []byte) string {
	have := strings.Split(string(got), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		if i >= len(have) || have[i] != line {
			return line
		}
	}
	return "after the end"
}

func TestGenerationIsStable(t *testing.T) {
	first, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	second, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for path := range first {
		if !bytes.Equal(first[path], second[path]) {
			t.Errorf("%s differs from one run to the next", path)
		}
	}
}

var (
	headingPattern = regexp.MustCompile(`(?m)^#+ (.*)$`)
	linkPattern    = regexp.MustCompile(`\]\(#([^)]*)\)`)
)

func TestPageIsWhole(t *testing.T) {
	docs, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	page := string(docs["docs/rest-api.md"])
	headings := map[string]bool{}
	for _, m := range headingPattern.FindAllStringSubmatch(page, -1) {
		if a := anchor(m[1]); headings[a] {
			t.Errorf("two headings are %q", m[1])
		} else {
			headings[a] = true
		}
	}
	for _, m := range linkPattern.FindAllStringSubmatch(page, -1) {
		if !headings[m[1]] {
			t.Errorf("no heading is linked by #%s", m[1])
		}
	}
	doc, err := parse(docs["api/openapi.json"])
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, methods := range doc.Paths {
		for _, op := range methods {
			n++
			if !headings[anchor(op.ID)] {
				t.Errorf("operation %s is not on the page", op.ID)
			}
		}
	}
	if n < 60 {
		t.Errorf("the document has %d operations", n)
	}
}
