package archtest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"ramet.dev/ramet/internal/network/document"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// codePath is a path of the repository in backquotes.
	codePath = regexp.MustCompile("`((?:api|client|internal|cmd|packaging|test|docs|\\.ci)/[A-Za-z0-9_./-]+)`")
	fence    = regexp.MustCompile("^ *```(.*)$")
	heading  = regexp.MustCompile("^#{1,6} +(.*)$")
	// shown is what of a heading is no part of its anchor.
	shown = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	// linked is a link in a heading, of which the anchor has the text.
	linked = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(text string) []string {
	var all []string
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if fence.MatchString(line) {
			fenced = !fenced
		}
		m := heading.FindStringSubmatch(line)
		if m == nil || fenced {
			continue
		}
		title := linked.ReplaceAllString(m[1], "$1")
		anchor := strings.ReplaceAll(shown.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		for n := 0; ; n++ {
			if a := anchor + strings.Repeat("-"+strconv.Itoa(n), min(n, 1)); !slices.Contains(all, a) {
				all = append(all, a)
				break
			}
		}
	}
	return all
}

// docFaults returns what a document refers to and is not there. all are the
// files of the repository, and read returns the text of one.
func docFaults(file, text string, all []string, read func(file string) string) []string {
	paths := map[string]bool{} // of files, and of the directories that they are in
	for _, f := range all {
		for ; !paths[f]; f = path.Dir(f) {
			paths[f] = true
		}
	}
	exists := func(p string) bool { return paths[path.Clean(p)] }
	anchorsOf := map[string][]string{} // by the target of a link, "" for this document
	var faults []string
	for _, m := range markdownLink.FindAllStringSubmatch(text, -1) {
		target, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		if target != "" {
			target = path.Join(path.Dir(file), target)
			if !exists(target) {
				faults = append(faults, "links to "+m[1]+", which does not exist")
				continue
			}
		}
		if anchor == "" {
			continue
		}
		if _, ok := anchorsOf[target]; !ok {
			there := text
			if target != "" {
				there = read(target)
			}
			anchorsOf[target] = anchors(there)
		}
		if !slices.Contains(anchorsOf[target], anchor) {
			faults = append(faults, "links to "+m[1]+", where no heading has that anchor")
		}
	}
	for _, m := range codePath.FindAllStringSubmatch(text, -1) {
		if !exists(m[1]) {
			fault := "speaks of " + m[1] + ", which does not exist"
			for _, f := range all {
				if path.Base(f) == path.Base(m[1]) {
					fault += "; there is " + f
				}
			}
			faults = append(faults, fault)
		}
	}
	return faults
}

// listOfDocuments tells language models which documents there are.
const listOfDocuments = "llms.txt"

func TestDocumentsReferToWhatExists(t *testing.T) {
	all := ourFiles(t)
	list := string(read(t, listOfDocuments))
	for _, f := range all {
		if path.Ext(f) != ".md" && f != listOfDocuments {
			continue
		}
		if strings.HasPrefix(f, "docs/") && !strings.HasPrefix(f, "docs/architecture/") && !strings.Contains(list, "]("+f+")") {
			t.Errorf("%s does not list %s", listOfDocuments, f)
		}
		for _, fault := range docFaults(f, string(read(t, f)), all, func(file string) string { return string(read(t, file)) }) {
			t.Errorf("%s %s", f, fault)
		}
	}
	for _, f := range []string{"README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "docs/architecture/overview.md", "docs/security.md"} {
		if !slices.Contains(all, f) {
			t.Errorf("there is no %s", f)
		}
	}
}

func TestDocFaultsAreFound(t *testing.T) {
	all := []string{"docs/a.md", "internal/x/y.go"}
	other := "# A `b` c: d\n```\n# no\n```\n## A b c d\n"
	for text, want := range map[string]int{
		"# Here\n[a](a.md) [b](https://x.example/#b) [c](#here) [d](../internal/x)": 0,
		"[a](b.md)": 1,
		"see `internal/x/y.go`, `internal/x` and `internal/x/`": 0,
		"see `internal/z/y.go`":                                 1,
		"[a](a.md#a-b-c-d) [b](a.md#a-b-c-d-1)":                 0,
		"[a](a.md#no) [b](#no)":                                 2,
	} {
		if got := docFaults("docs/b.md", text, all, func(string) string { return other }); len(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestEveryPackageIsDescribed checks that the list of packages is whole. That it names no
// others is checked as for all paths.
func TestEveryPackageIsDescribed(t *testing.T) {
	const list = "docs/architecture/packages.md"
	text := string(read(t, list))
	dirs := map[string]bool{}
	for _, f := range ourFiles(t) {
		if dir := path.Dir(f); path.Ext(f) == ".go" && !strings.Contains(f, "/testdata/") {
			dirs[dir] = true
		}
	}
	for dir := range dirs {
		if !strings.Contains(text, "`"+dir+"`") {
			t.Errorf("%s does not name the package %s: add it with a line on what it is for", list, dir)
		}
	}
}

// maxLine is the length of a line that is read without scrolling, in characters.
const maxLine = 120

// languages are those of fenced blocks. Sessions of the command line are of "console", which
// test/docs runs.
var languages = []string{"console", "text", "mermaid", "go", "json", "python", "sh", "toml", "ts", "yaml"}

// formFaults returns what makes a document hard to read, or keeps its commands from being tested.
func formFaults(text string) []string {
	var faults []string
	language, n := "", 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		at := "line " + strconv.Itoa(n) + " "
		if length := utf8.RuneCountInString(line); length > maxLine {
			faults = append(faults, at+"has "+strconv.Itoa(length)+" characters")
		}
		if m := fence.FindStringSubmatch(line); m != nil {
			switch {
			case language != "":
				language = ""
			case !slices.Contains(languages, m[1]):
				faults = append(faults, at+"begins a block of the language "+strconv.Quote(m[1]))
				language = "text"
			default:
				language = m[1]
			}
			continue
		}
		if language != "" && language != "console" && strings.HasPrefix(line, "$ ") {
			faults = append(faults, at+"is a command in a block that is not tested")
		}
	}
	return faults
}

// yamlFaults returns what keeps blocks of YAML from being network documents, the only YAML that users
// write.
func yamlFaults(text string) (faults []string, blocks int) {
	var block strings.Builder
	inside, n, first := false, 0, 0
	for line := range strings.Lines(text) {
		n++
		m := fence.FindStringSubmatch(strings.TrimRight(line, "\n"))
		switch {
		case m == nil && inside:
			block.WriteString(line)
		case m != nil && inside:
			if _, err := document.Parse([]byte(block.String())); err != nil {
				faults = append(faults, "line "+strconv.Itoa(first)+" begins a block that is no network document: "+err.Error())
			}
			inside = false
		case m != nil && m[1] == "yaml":
			inside, first = true, n
			blocks++
			block.Reset()
		}
	}
	return faults, blocks
}

func TestNetworkDocumentsInDocumentsAreValid(t *testing.T) {
	total := 0
	for _, f := range ourFiles(t) {
		if !isDoc(f) {
			continue
		}
		faults, blocks := yamlFaults(string(read(t, f)))
		for _, fault := range faults {
			t.Errorf("%s: %s", f, fault)
		}
		total += blocks
	}
	if total == 0 {
		t.Error("no document has a block of YAML")
	}
	if faults, blocks := yamlFaults("```text\nx: [\n```\n```yaml\nallow: [a..b]\n```\n```yaml\ndefault: deny\n```\n"); len(faults) != 1 || blocks != 2 {
		t.Errorf("%q in %d blocks", faults, blocks)
	}
}

// generated are documents that programs write, which their own tests compare.
var generated = []string{"docs/cli.md", "docs/rest-api.md"}

func TestDocumentsAreEasyToRead(t *testing.T) {
	for _, f := range ourFiles(t) {
		if !isDoc(f) || slices.Contains(generated, f) {
			continue
		}
		for _, fault := range formFaults(string(read(t, f))) {
			t.Errorf("%s: %s", f, fault)
		}
	}
	if n := strings.Count(string(read(t, "README.md")), "\n"); n > 250 {
		t.Errorf("README.md has %d lines: details belong to docs", n)
	}
}

func TestFormFaultsAreFound(t *testing.T) {
	for text, want := range map[string]int{
		strings.Repeat("ä", 120):                             0,
		strings.Repeat("ä", 121):                             1,
		"```console\n$ ramet ls\n```\n```text\nramet\n```\n": 0,
		"```text\n$ ramet ls\n```\n":                         1,
		"```\nx\n```\n":                                      1,
	} {
		if got := formFaults(text); len(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// figures are numbers of the code that documents repeat: the code that has the number,
// and the text that some document has for it.
var figures = []struct{ tree, code, text string }{
	{"internal/sentry", "settleAfter = 3 * time.Second", "returned to the host 3 s after"},
	{"internal/engine", "refillDelay = 150 * time.Millisecond", "quiet for 150 ms"},
	{"internal/engine", "burstMemory = 10 * time.Minute", "for ten minutes after"},
	{"internal/daemon", "drainTimeout = 10 * time.Second", "finish for up to 10 s"},
	{"internal/daemon", "drainTimeout = 10 * time.Second", "go on for up to 10 s"},
	{"internal/engine", "window = 5 * time.Millisecond", "for the first 5 to 7 ms of each request"},
	{"internal/engine", "window = 5 * time.Millisecond", "processors poll for 5 to 7 ms"},
	{"internal/engine", "window = 5 * time.Millisecond", "during the first 5 to 7 ms of each request"},
	{"internal/engine", "maxProcessors = 8", "the machine has at most 8 processors"},
	{"internal/node", "sentryOverheadMiB = 64", "The control group has 64 MiB"},
	{"internal/node", "MaxNeeds = 24", "more than 24 snapshots"},
	{"internal/node", "block = 64 << 10", "compared, 64 KiB at a time"},
	{"internal/node", "keptEvents = 4096", "keeps the last 4096"},
	{"internal/node", "PerSandbox = 12 << 20", "counts 12 MiB for a sandbox"},
	{"internal/node", "restAfter = 15 * time.Second", "were not used for 15 s"},
	{"internal/node", "requestsPerSecond = 20", "make 20 requests a second"},
	{"internal/node", "maxHunks = 16 << 20", "files up to 1 MiB and 16 MiB together"},
	{"internal/engine", "MaxLine = 16 << 10", "object of at most 16 KiB"},
	{"internal/engine", "MaxReply = 100 << 10", "answers by 100 KiB"},
	{"cmd/ramet", "slack = 2 * time.Millisecond", "let it be late by 2 ms"},
	{"internal/sentry", "bornSlack = time.Millisecond", "sentries let their timers be a millisecond late"},
	{"internal/sentry", "pollAfter = 40", "forty times before systrap may poll for it"},
	{"internal/sentry", "rewriteAfter = 100", "makes 100 calls before one is rewritten"},
	{"internal/sentry", "outputPipe = 256 << 10", "Pipes for output have 256 KiB"},
	{"internal/sentry", "totalOutput = 32 << 20", "32 MiB of a sandbox"},
	{"internal/sentry", "maxProcesses = 1024", "the table has 1024 processes"},
	{"internal/sentry", "maxConns = 512", "At most 512 are open at once"},
	{"internal/sentry", "maxLog = 4 << 20", "log file end at 4 MiB"},
	{"internal/server", "most = 20000", "last 20 000 answers"},
}

// TestDocumentsHaveTheFiguresOfTheCode fails if a number of the code changes and the
// documents keep the old one. The code may stand in any file of its tree.
func TestDocumentsHaveTheFiguresOfTheCode(t *testing.T) {
	words := func(file string) string { return strings.Join(strings.Fields(string(read(t, file))), " ") }
	texts := map[string]string{}
	for _, f := range ourFiles(t) {
		if isDoc(f) || path.Ext(f) == ".go" && !strings.HasSuffix(f, "_test.go") {
			texts[f] = words(f)
		}
	}
	has := func(text string, in func(file string) bool) bool {
		for f, words := range texts {
			if in(f) && strings.Contains(words, text) {
				return true
			}
		}
		return false
	}
	for _, f := range figures {
		if !has(f.code, func(file string) bool { return strings.HasPrefix(file, f.tree+"/") }) {
			t.Errorf("no file of %s has %q: the documents say %q", f.tree, f.code, f.text)
		}
		if !has(f.text, isDoc) {
			t.Errorf("no document says %q, as %s does with %q", f.text, f.tree, f.code)
		}
	}
}

// isDoc reports whether the file is a document about the present state, as all Markdown
// but the changelog is.
func isDoc(file string) bool { return path.Ext(file) == ".md" && file != "CHANGELOG.md" }

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
