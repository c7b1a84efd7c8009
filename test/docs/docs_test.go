package docs

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	top = "../.."
	// envBuild has the image built if it is missing.
	envBuild = "RAMET_TEST_BUILD"
)

// imageBuild are the arguments by which the image "python" of the documents is made.
var imageBuild = []string{"image", "build", "python", "--include", "python3-numpy"}

var update = flag.Bool("update", false, "write real outputs into the documents")

// programs is the directory that has ramet.
var programs string

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintf(os.Stderr, "prepare: %v\n", err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	if programs, err = os.MkdirTemp("", "ramet-docs-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(programs)
	build := exec.Command("go", "build", "-o", filepath.Join(programs, "ramet"), "./cmd/ramet")
	build.Dir, build.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build ramet: %w: %s", err, out)
	}
	return m.Run(), nil
}

// TestDocs runs the console blocks of all documents.
func TestDocs(t *testing.T) {
	for _, path := range pages(t) {
		p, err := readPage(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(p.blocks) == 0 {
			continue
		}
		name, err := filepath.Rel(top, path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.ReplaceAll(name, "/", "-"), func(t *testing.T) {
			t.Parallel()
			testPage(t, p)
		})
	}
}

// pages returns the documents.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{filepath.Join(top, "README.md"), filepath.Join(top, "CONTRIBUTING.md")}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md", "skills/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

func testPage(t *testing.T, p page) {
	var w *world
	var tested int
	wants, gots := masker{}, masker{}
	outputs := map[int][]string{}
	for _, b := range p.blocks {
		if b.reason != "" {
			t.Run(fmt.Sprintf("line %d", b.line+1), func(t *testing.T) { t.Skipf("not tested: %s", b.reason) })
			continue
		}
		if missing := b.missing(); missing != "" {
			t.Run(fmt.Sprintf("line %d", b.line+1), func(t *testing.T) { t.Skipf("this machine has no %s, which a reader runs here", missing) })
			continue
		}
		for _, s := range b.steps {
			if w == nil {
				w = newWorld(t)
			}
			tested++
			if got, ok := w.step(s, wants, gots); !ok {
				outputs[s.line] = got
			}
		}
	}
	t.Logf("%d commands in %d blocks", tested, len(p.blocks))
	if *update && len(outputs) > 0 {
		if err := os.WriteFile(p.path, []byte(p.replace(outputs)), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, b := range p.blocks {
		for _, s := range b.steps {
			if got, ok := outputs[s.line]; ok {
				t.Errorf("%s:%d: %s\nwrites\n%s\nand not\n%s", p.path, s.line+1, s.command, strings.Join(got, "\n"), strings.Join(s.want, "\n"))
			}
		}
	}
}

// step runs a command of a page, and returns its output if that is not as the page says.
func (w *world) step(s step, wants, gots masker) (got []string, ok bool) {
	w.t.Helper()
	output, err := w.run(s.command)
	if err != nil {
		w.t.Fatalf("line %d: %s: %v", s.line+1, s.command, err)
	}
	wait := time.Duration(0)
	if strings.HasSuffix(s.command, "&") {
		wait = 20 * time.Second
	}
	want := wants.maskAll(s.want)
	var seen masker
	ok = eventually(wait, func() bool {
		var text []byte
		if text, err = os.ReadFile(output); err != nil {
			return true
		}
		if got = nil; len(text) > 0 {
			got = slices.DeleteFunc(strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), isProgress)
		}
		seen = maps.Clone(gots)
		return matches(want, seen.maskAll(got))
	})
	if err != nil {
		w.t.Fatal(err)
	}
	maps.Copy(gots, seen)
	return got, ok
}

// isProgress reports whether a line tells a phase of long work, which a fast machine does not write.
func isProgress(line string) bool {
	return strings.HasPrefix(line, "ramet: ") && strings.HasSuffix(line, " …")
}

// imageDir returns a data directory that has the image, which is kept for the next run.
var imageDirOnce struct {
	sync.Once
	dir string
	err error
}

func imageDir(t *testing.T) string {
	t.Helper()
	o := &imageDirOnce
	o.Do(func() { o.dir, o.err = makeImage() })
	if o.err != nil {
		t.Fatal(o.err)
	}
	if o.dir == "" {
		t.Skipf("the image of the documents is not at hand: with %s=1 it is made, from this machine's Debian mirrors, and kept", envBuild)
	}
	return o.dir
}

// makeImage returns the data directory with the image, or "" if there is none and it is not to be made.
func makeImage() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil
	}
	dir := filepath.Join(cache, "ramet-test", fmt.Sprintf("docs-%.6x", sha256.Sum256([]byte(strings.Join(imageBuild, " ")))))
	if _, err := os.Stat(filepath.Join(dir, "whole")); err == nil {
		return dir, nil
	}
	if os.Getenv(envBuild) == "" {
		return "", nil
	}
	run, err := os.MkdirTemp("", "ramet-docs-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(run)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	env := append(environment(run), "XDG_RUNTIME_DIR="+run, "XDG_DATA_HOME="+dir)
	out, err := ramet(env, imageBuild...)
	if endErr := endDaemon(env); err == nil && endErr != nil {
		return "", endErr
	}
	if err != nil {
		return "", fmt.Errorf("build the image: %w: %s", err, out)
	}
	return dir, os.WriteFile(filepath.Join(dir, "whole"), nil, 0o600)
}

func TestPagesAreParsed(t *testing.T) {
	text := "# x\n```text\n$ no\n```\n```console\n$ a 'b\n> c'\nout\n\nmore\n$ d\n```\n```console\n# not tested: long\n$ e\n```\n"
	p, err := parsePage("x.md", text)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.blocks) != 2 || p.blocks[1].reason != "long" || len(p.blocks[0].steps) != 2 {
		t.Fatalf("blocks: %+v", p.blocks)
	}
	if s := p.blocks[0].steps[0]; s.command != "a 'b\nc'" || len(s.want) != 3 || s.line != 5 {
		t.Errorf("step: %+v", s)
	}
	if got := p.replace(map[int][]string{5: {"new"}, 10: {"last"}}); got != "# x\n```text\n$ no\n```\n```console\n$ a 'b\n> c'\nnew\n$ d\nlast\n```\n```console\n# not tested: long\n$ e\n```\n" {
		t.Errorf("replaced: %q", got)
	}
	for _, bad := range []string{"```console\nout\n```\n", "```console\n$ x\n"} {
		if _, err := parsePage("x.md", bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestOutputsAreCompared(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"sbx_aaaaaaaaaaaaaaaa\nsbx_aaaaaaaaaaaaaaaa", "sbx_bbbbbbbbbbbbbbbb\nsbx_bbbbbbbbbbbbbbbb", true},
		{"sbx_aaaaaaaaaaaaaaaa\nsbx_aaaaaaaaaaaaaaaa", "sbx_bbbbbbbbbbbbbbbb\nsbx_cccccccccccccccc", false},
		{"sbx_aaaaaaaaaaaaaaaa", "snap_bbbbbbbbbbbbbbbb", false},
		{"pause 1.5 ms,   2 MiB", "pause 12 ms, 3.5 MiB", true},
		{"6 B", "7 B", false},
		{"a\n…\nd", "a\nb\nc\nd", true},
		{"a\n…\nd", "a\nb", false},
		{"1.2… of numpy", "1.24.2 of numpy", true},
		{"2026-01-01T10:00:00Z x", "2027-02-03T11:12:13.5Z x", true},
		{`{"duration_ms":5.38}`, `{"duration_ms":12}`, true},
		{"a", "a\nb", false},
		{"", "a", false},
	} {
		if got := matches(masker{}.maskAll(strings.Split(c.want, "\n")), masker{}.maskAll(strings.Split(c.got, "\n"))); got != c.same {
			t.Errorf("%q and %q: %v", c.want, c.got, got)
		}
	}
}
