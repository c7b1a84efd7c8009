package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
)

// envFuzz is how long each of the tests that do random things goes on, instead of
// ending after a few rounds.
const envFuzz = "RAMET_FS_FUZZ"

// envWithout are features of the fuzzer that are not to be used, with commas
// between them: to find out what else is wrong. See (*fuzzer).has in the guest
// program.
const envWithout = "RAMET_FS_WITHOUT"

// fsRounds calls round that often, or for as long as envFuzz says.
func fsRounds(t testing.TB, count int, round func()) {
	t.Helper()
	limit, err := time.ParseDuration(os.Getenv(envFuzz))
	if os.Getenv(envFuzz) != "" && err != nil {
		t.Fatal(err)
	}
	begin, done := time.Now(), 0
	for ; limit == 0 && done < count || time.Since(begin) < limit; done++ {
		round()
	}
	t.Logf("rounds: %d in %v", done, time.Since(begin).Round(time.Millisecond))
}

// fsPatience bounds a run of many cases or operations.
const fsPatience = 3 * time.Minute

// guestProgram is the guest program, which tests of file systems run on the host
// too.
func guestProgram() string {
	// This makes go test note that the result depends on the program's source, and
	// not take it from its cache when nothing else has changed. There need not be
	// any source.
	_, _ = os.ReadDir("guest")
	return filepath.Join(assets, "guest")
}

// fsTar is the archive of the image "fs": that of "box", and below /lower the
// files that the cases of "guest fs" want to find.
var fsTar = sync.OnceValues(func() (string, error) {
	files, err := exec.Command(guestProgram(), "fs", "tar", "lower").Output()
	if err != nil {
		return "", fmt.Errorf("guest fs tar: %w", err)
	}
	box, err := os.ReadFile(filepath.Join(assets, "image.tar"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(base, "fs.tar")
	return path, os.WriteFile(path, append(files, box...), 0o644)
})

// newFSNode opens a node with the image "fs".
func newFSNode(t testing.TB) *testNode {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv(envAssets) != "" {
		t.Skip("root ran the same: file systems of sandboxes do not depend on who starts them")
	}
	path, err := fsTar()
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	store, err := image.Open(n.paths.Images())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := store.ImportTar(asOwner, f, image.Options{Name: "fs"}); err != nil {
		t.Fatal(err)
	}
	return n
}

// createFS makes a sandbox of the image "fs" in which diskMiB may be written, or
// anything if it is 0.
func (n *testNode) createFS(name string, diskMiB int64) {
	n.t.Helper()
	_, err := n.m.Create(asOwner, api.CreateRequest{Image: "fs", Name: name, Limits: api.Limits{DiskMiB: diskMiB}})
	if err != nil {
		n.t.Fatalf("create: %v", err)
	}
}

// long runs a command of the guest program that may take longer than others,
// and must succeed.
func (n *testNode) long(ref string, args ...string) string {
	n.t.Helper()
	return n.longExec(ref, api.ExecRequest{Argv: append([]string{"guest"}, args...)})
}

func (n *testNode) longExec(ref string, req api.ExecRequest) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(asOwner, fsPatience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	r, err := n.m.Exec(ctx, ref, req, api.ExecIO{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		n.t.Fatalf("%s: %v%s: %v", ref, req.Argv, req.Shell, err)
	}
	if r.ExitCode != 0 {
		n.t.Fatalf("%s: %v%s: exit code %d: %s%s", ref, req.Argv, req.Shell, r.ExitCode, lastOf(stdout.String()), lastOf(stderr.String()))
	}
	return stdout.String()
}

// lastOf is the end of a long text.
func lastOf(s string) string { return s[max(0, len(s)-4000):] }

// fsResult is what "guest fs run" prints for each case.
type fsResult struct {
	Name  string  `json:"name"`
	Error string  `json:"error"`
	Skip  string  `json:"skip"`
	MS    float64 `json:"ms"`
	Done  bool    `json:"done"`
}

// fsResults reads the output of "guest fs run".
func fsResults(t testing.TB, out string) []fsResult {
	t.Helper()
	var all []fsResult
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var r fsResult
		err := d.Decode(&r)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("after %d cases: %v", len(all), err)
		}
		all = append(all, r)
	}
	if len(all) == 0 || !all[len(all)-1].Done {
		t.Fatalf("the program ended after %d cases: %+v", len(all), all[max(0, len(all)-1):])
	}
	return all[:len(all)-1]
}
