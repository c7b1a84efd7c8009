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

// figures are numbers of the code that documents repeat: what the code has, and what
// each document says then.
var figures = []struct{ file, code, doc, text string }{
	{"internal/sentry/server.go", "settleAfter = 3 * time.Second", "docs/architecture.md", "given back 3 s after"},
	{"internal/engine/launch/pool.go", "refillDelay = 150 * time.Millisecond", "docs/architecture.md", "quiet for 150 ms"},
	{"internal/engine/launch/demand.go", "burstMemory = 10 * time.Minute", "README.md", "for ten minutes after"},
	{"internal/daemon/serve.go", "DefaultDrainTimeout = 10 * time.Second", "docs/architecture.md", "finish for up to 10 s"},
	{"internal/daemon/serve.go", "DefaultDrainTimeout = 10 * time.Second", "README.md", "go on for up to 10 s"},
	{"internal/engine/idlepoll/idlepoll.go", "window = 5 * time.Millisecond", "docs/architecture.md", "for the first 5 to 7 ms of each request"},
	{"internal/engine/idlepoll/idlepoll.go", "window = 5 * time.Millisecond", "docs/threat-model.md", "processors poll for 5 to 7 ms"},
	{"internal/engine/idlepoll/idlepoll.go", "window = 5 * time.Millisecond", "README.md", "during the first 5 to 7 ms of each request"},
	{"internal/engine/idlepoll/idlepoll.go", "maxProcessors = 8", "README.md", "the machine has at most 8 processors"},
	{"internal/node/box.go", "sentryOverheadMiB = 64", "README.md", "The limit has 64 MiB"},
	{"internal/node/layout.go", "maxNeeds = 24", "docs/architecture.md", "more than 24 snapshots"},
	{"internal/node/layout.go", "block = 64 << 10", "docs/architecture.md", "compared, 64 KiB at a time"},
	{"internal/node/events.go", "keptEvents = 4096", "README.md", "keeps the last 4096"},
	{"internal/node/pressure.go", "perSandbox = 12 << 20", "README.md", "reckons 12 MiB for a sandbox"},
	{"internal/node/pressure.go", "restAfter = 15 * time.Second", "README.md", "nobody has used for 15 s"},
	{"internal/node/grant.go", "requestsPerSecond = 20", "README.md", "ask 20 times a second"},
	{"internal/node/hunks.go", "maxHunks = 16 << 20", "README.md", "files up to 1 MiB and 16 MiB together"},
	{"internal/engine/control/control.go", "MaxLine = 16 << 10", "docs/architecture.md", "object of at most 16 KiB"},
	{"internal/engine/control/control.go", "MaxReply = 100 << 10", "docs/threat-model.md", "answers by 100 KiB"},
	{"cmd/ramet/main.go", "slack = 2 * time.Millisecond", "docs/architecture.md", "let it be late by 2 ms"},
	{"internal/sentry/server.go", "bornSlack = time.Millisecond", "docs/architecture.md", "sentries let their timers be a millisecond late"},
	{"internal/sentry/systraptuning/polling.go", "pollAfter = 40", "docs/architecture.md", "forty times before systrap may poll for it"},
	{"internal/sentry/systraptuning/rewrite.go", "rewriteAfter = 100", "docs/architecture.md", "makes 100 calls before one is rewritten"},
	{"internal/sentry/guest/pump.go", "outputPipe = 256 << 10", "docs/architecture.md", "Pipes for output have 256 KiB"},
	{"internal/sentry/guest/ring.go", "totalOutput = 32 << 20", "docs/threat-model.md", "32 MiB of a sandbox"},
	{"internal/sentry/guest/table.go", "maxProcesses = 1024", "docs/architecture.md", "the table has 1024 processes"},
	{"internal/sentry/guest/dial.go", "maxConns = 512", "docs/threat-model.md", "At most 512 are open at once"},
	{"internal/sentry/log.go", "maxLog = 4 << 20", "docs/threat-model.md", "log file ends at 4 MiB"},
	{"internal/server/idempotency/answers.go", "most = 20000", "README.md", "last 20 000 answers"},
}

// TestDocumentsHaveTheFiguresOfTheCode: whoever changes one changes both, and the table.
func TestDocumentsHaveTheFiguresOfTheCode(t *testing.T) {
	words := func(file string) string { return strings.Join(strings.Fields(string(read(t, file))), " ") }
	for _, f := range figures {
		if !strings.Contains(words(f.file), f.code) {
			t.Errorf("%s does not have %q any more: see what %s says there (%q)", f.file, f.code, f.doc, f.text)
		}
		if !strings.Contains(words(f.doc), f.text) {
			t.Errorf("%s does not say %q, as the %q of %s", f.doc, f.text, f.code, f.file)
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
