package archtest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// codePath is a path of the repository in backquotes.
	codePath = regexp.MustCompile("`((?:internal|cmd|test|docs|\\.ci)/[A-Za-z0-9_./-]+)`")
)

// docFaults returns what a document refers to and is not there. all are the
// files of the repository.
func docFaults(file, text string, all []string) []string {
	exists := func(p string) bool {
		p = path.Clean(p)
		return slices.ContainsFunc(all, func(f string) bool { return f == p || strings.HasPrefix(f, p+"/") })
	}
	var faults []string
	for _, m := range markdownLink.FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		if !exists(path.Join(path.Dir(file), target)) {
			faults = append(faults, "links to "+m[1]+", which does not exist")
		}
	}
	for _, m := range codePath.FindAllStringSubmatch(text, -1) {
		if !exists(m[1]) {
			faults = append(faults, "speaks of "+m[1]+", which does not exist")
		}
	}
	return faults
}

func TestDocumentsReferToWhatExists(t *testing.T) {
	all := ourFiles(t)
	for _, f := range all {
		if path.Ext(f) != ".md" {
			continue
		}
		for _, fault := range docFaults(f, string(read(t, f)), all) {
			t.Errorf("%s %s", f, fault)
		}
	}
	for _, f := range []string{"README.md", "LICENSE", "CHANGELOG.md", "docs/architecture.md", "docs/threat-model.md"} {
		if !slices.Contains(all, f) {
			t.Errorf("there is no %s", f)
		}
	}
}

func TestDocFaultsAreFound(t *testing.T) {
	all := []string{"docs/a.md", "internal/x/y.go"}
	for text, want := range map[string]int{
		"[a](a.md) [b](https://x.example/) [c](#here) [d](../internal/x)": 0,
		"[a](b.md)": 1,
		"see `internal/x/y.go`, `internal/x` and `internal/x/`": 0,
		"see `internal/z/y.go`":                                 1,
	} {
		if got := docFaults("docs/b.md", text, all); len(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestCheckIsExecutable: a file that cannot be run checks nothing.
func TestCheckIsExecutable(t *testing.T) {
	fi, err := os.Stat(filepath.Join(rootDir, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	if fi.Mode().Perm()&0o111 != 0o111 {
		t.Errorf(".ci/run has mode %v", fi.Mode())
	}
}
