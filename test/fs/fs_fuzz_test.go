package fs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// fuzzOp, fuzzStep, fuzzRequest and fuzzReply are what "guest fs fuzz" speaks;
// the guest program says what they mean.
type fuzzOp map[string]any

type fuzzStep struct {
	Op     fuzzOp `json:"op"`
	Result string `json:"result"`
}

func (s fuzzStep) String() string {
	b, err := json.Marshal(s.Op)
	if err != nil {
		return err.Error()
	}
	result := s.Result
	if strings.Contains(result, "\n") {
		result = fmt.Sprintf("(%d lines)", strings.Count(result, "\n"))
	}
	return fmt.Sprintf("%s = %s", b, result)
}

type fuzzRequest struct {
	Ops   []fuzzOp `json:"ops,omitempty"`
	Seed  uint64   `json:"seed,omitempty"`
	Count int      `json:"count,omitempty"`
	Log   bool     `json:"log,omitempty"`
}

type fuzzReply struct {
	Count  int        `json:"count"`
	Digest string     `json:"digest"`
	Steps  []fuzzStep `json:"steps"`
	Error  string     `json:"error"`
}

// fuzz is a test that compares sandboxes with a file system of the host.
type fuzz struct {
	*harness.Node
	rng     *rand.Rand
	without string // features that are not used
	runs    int
}

// fuzzKnown are features that are not used, as they are known not to work: see
// fsKnown.
const fuzzKnown = "samegroup"

func newFuzz(t *testing.T) *fuzz {
	t.Helper()
	f := &fuzz{Node: harness.NewFSNode(t), rng: harness.Seeded(t), without: fuzzKnown + "," + os.Getenv(envWithout)}
	if os.Geteuid() != 0 {
		f.without += ",chown,user,suid,image" // which the host side cannot do
	}
	return f
}

// host does the same on the host's tmpfs.
func (f *fuzz) host(requests ...fuzzRequest) []fuzzReply {
	f.T.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "ramet-fs-")
	if err != nil {
		f.T.Skipf("no tmpfs to compare with: %v", err)
	}
	defer f.removeTree(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		f.T.Fatal(err)
	}
	cmd := exec.Command(harness.GuestProgram(), "fs", "fuzz", "run", "-make", "-dir", filepath.Join(dir, "fuzz"), "-without", f.without)
	cmd.Stdin = bytes.NewReader(fuzzEncode(requests))
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: uid, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: gid, Size: 1}},
		}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		f.T.Fatalf("host: %v: %s", err, stderr.String())
	}
	return f.decode("host", string(out))
}

// removeTree removes a directory in which others may not be listed, which stops
// those who are not root.
func (f *fuzz) removeTree(dir string) {
	f.T.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && err == nil {
			return os.Chmod(path, 0o700) // before it is read
		}
		return err
	})
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		f.T.Error(err)
	}
}

func fuzzEncode(requests []fuzzRequest) []byte {
	var b bytes.Buffer
	for _, r := range requests {
		if err := json.NewEncoder(&b).Encode(r); err != nil {
			panic(err) // a struct of strings and numbers
		}
	}
	return b.Bytes()
}

func (f *fuzz) decode(where, out string) []fuzzReply {
	f.T.Helper()
	var replies []fuzzReply
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var r fuzzReply
		if err := d.Decode(&r); err != nil {
			f.T.Fatalf("%s: %v", where, err)
		}
		if r.Error != "" {
			f.T.Fatalf("%s: %s", where, r.Error)
		}
		replies = append(replies, r)
	}
	return replies
}

// fuzzBox is a sandbox in which operations are done, with all that were done in
// it and its ancestors.
type fuzzBox struct {
	f    *fuzz
	ref  string
	plan []fuzzRequest
}

// start makes a sandbox with an operator in it.
func (f *fuzz) start() *fuzzBox {
	f.T.Helper()
	f.runs++
	b := &fuzzBox{f: f, ref: fmt.Sprintf("fuzz-%d", f.runs)}
	f.CreateFS(b.ref, 0)
	where := []string{"-dir", fmt.Sprintf("/lower/fuzz.%d", f.runs%8)}
	if strings.Contains(f.without, "image") {
		where = []string{"-dir", "/var/fuzz", "-make"}
	}
	f.Long(b.ref, append([]string{"fs", "fuzz", "start", "-without", f.without}, where...)...)
	return b
}

// do has a sandbox do what is asked.
func (b *fuzzBox) do(req fuzzRequest) fuzzReply {
	b.f.T.Helper()
	out, err := b.f.Run(b.ref, api.ExecRequest{Argv: []string{"guest", "fs", "fuzz", "do"}}, string(fuzzEncode([]fuzzRequest{req})))
	if err != nil || out.ExitCode != 0 {
		b.f.T.Fatalf("%s: %+v: %v %+v: %s", b.ref, b.plan, err, out.ExecResult, harness.LastOf(out.Stderr.String()))
	}
	replies := b.f.decode(b.ref, out.Stdout.String())
	if len(replies) != 1 {
		b.f.T.Fatalf("%s: %d answers: %s", b.ref, len(replies), harness.LastOf(out.Stderr.String()))
	}
	return replies[0]
}

// work does some operations and looks at all files.
func (b *fuzzBox) work(count int) {
	b.f.T.Helper()
	req := fuzzRequest{Seed: b.f.rng.Uint64N(1e9) + 1, Count: count}
	b.plan = append(b.plan, req)
	b.do(req)
}

// check looks at all files of a sandbox and compares all results up to now with
// those of the host.
func (b *fuzzBox) check() {
	b.f.T.Helper()
	look := fuzzRequest{}
	b.plan = append(b.plan, look)
	got := b.do(look)
	want := b.f.host(b.plan...)
	if last := want[len(want)-1]; got.Digest != last.Digest || got.Count != last.Count {
		b.explain(want)
	}
}

// child is the same history in another sandbox.
func (b *fuzzBox) child(ref string) *fuzzBox {
	return &fuzzBox{f: b.f, ref: ref, plan: slices.Clone(b.plan)}
}

func (b *fuzzBox) fork() *fuzzBox {
	b.f.T.Helper()
	return b.child(b.f.Fork(b.ref, 1)[0].ID)
}

// explain fails the test with the first operation that did something else than
// on the host.
func (b *fuzzBox) explain(replies []fuzzReply) {
	b.f.T.Helper()
	got := b.do(fuzzRequest{Log: true}).Steps
	want := b.f.host(append(slices.Clone(b.plan), fuzzRequest{Log: true})...)
	steps := want[len(want)-1].Steps
	i := fuzzDiffer(steps, got)
	if i < 0 {
		b.f.T.Fatalf("%s: the digests differ and the steps do not: %+v", b.ref, b.plan)
	}
	var history strings.Builder
	for j := max(0, i-12); j < min(i, len(steps)); j++ {
		fmt.Fprintf(&history, "  %d %s\n", j, steps[j])
	}
	b.f.T.Errorf("%s: operation %d is not what it is on the host\n%s\nafter\n%splan (a fork may be between any two): %+v",
		b.ref, i, fuzzDifference(steps, got, i), history.String(), b.plan)
	// The stages that the first difference is in or behind of.
	var stages [][]fuzzOp
	from := 0
	for _, r := range replies {
		var ops []fuzzOp
		for _, s := range steps[from:min(r.Count, i+1)] {
			ops = append(ops, s.Op)
		}
		if from = min(r.Count, i+1); len(ops) > 0 {
			stages = append(stages, ops)
		}
	}
	b.f.reduce(stages)
	b.f.T.FailNow()
}

// fuzzDiffer returns the first step in which two runs differ, or -1.
func fuzzDiffer(want, got []fuzzStep) int {
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i].String() != got[i].String() || want[i].Result != got[i].Result {
			return i
		}
	}
	return -1
}

func fuzzDifference(want, got []fuzzStep, i int) string {
	if i >= len(want) || i >= len(got) {
		return fmt.Sprintf("  one side ends: %d operations on the host, %d in the sandbox", len(want), len(got))
	}
	w, g := strings.Split(want[i].Result, "\n"), strings.Split(got[i].Result, "\n")
	if len(w) < 2 {
		return fmt.Sprintf("  host:    %s\n  sandbox: %s", want[i], got[i])
	}
	var out strings.Builder
	fmt.Fprintf(&out, "  %s\n", want[i])
	for _, line := range w {
		if !slices.Contains(g, line) {
			fmt.Fprintf(&out, "  host:    %s\n", line)
		}
	}
	for _, line := range g {
		if !slices.Contains(w, line) {
			fmt.Fprintf(&out, "  sandbox: %s\n", line)
		}
	}
	return out.String()
}

// differs does operations in a sandbox that is forked between the stages, and on
// the host, and returns what differs.
func (f *fuzz) differs(stages [][]fuzzOp) string {
	f.T.Helper()
	b := f.start()
	made := []string{b.ref}
	var got []fuzzStep
	for i, ops := range stages {
		if i > 0 {
			b = b.fork()
			made = append(made, b.ref)
		}
		got = b.do(fuzzRequest{Ops: ops, Log: true}).Steps
	}
	f.Destroy(made...)
	reply := f.host(fuzzRequest{Ops: slices.Concat(stages...), Log: true})
	if i := fuzzDiffer(reply[0].Steps, got); i >= 0 {
		return fuzzDifference(reply[0].Steps, got, i)
	}
	return ""
}

// reduce looks for fewer operations that show a difference too.
func (f *fuzz) reduce(stages [][]fuzzOp) {
	f.T.Helper()
	difference := f.differs(stages)
	if difference == "" {
		f.T.Log("the same again shows no difference")
		return
	}
	until := time.Now().Add(time.Minute)
	for n := len(slices.Concat(stages...)) / 2; n > 0; n /= 2 {
		for from := 0; from < len(slices.Concat(stages...)) && time.Now().Before(until); {
			fewer := fuzzWithout(stages, from, n)
			if d := f.differs(fewer); d != "" {
				stages, difference = fewer, d
			} else {
				from += n
			}
		}
	}
	var out strings.Builder
	for i, ops := range stages {
		if i > 0 {
			fmt.Fprintln(&out, "  fork")
		}
		for _, op := range ops {
			fmt.Fprintf(&out, "  %s\n", strings.TrimSuffix(fuzzStep{Op: op}.String(), " = "))
		}
	}
	f.T.Logf("these operations are enough:\n%s%s", out.String(), difference)
}

// fuzzWithout leaves out some operations, and stages without any.
func fuzzWithout(stages [][]fuzzOp, from, n int) [][]fuzzOp {
	var fewer [][]fuzzOp
	at := 0
	for _, ops := range stages {
		var left []fuzzOp
		for _, op := range ops {
			if at < from || at >= from+n {
				left = append(left, op)
			}
			at++
		}
		if len(left) > 0 {
			fewer = append(fewer, left)
		}
	}
	return fewer
}

// TestFSFuzz does random operations in sandboxes and on the host's tmpfs, and
// compares all that can be seen of them.
func TestFSFuzz(t *testing.T) {
	f := newFuzz(t)
	harness.Rounds(t, 4, func() {
		b := f.start()
		b.work(2000)
		b.check()
		f.Destroy(b.ref)
	})
}

// TestFSFuzzForks does random operations in a tree of sandboxes that grows
// meanwhile in all ways there are. Each must be as if its own history had been
// all.
func TestFSFuzzForks(t *testing.T) {
	ctx := harness.AsOwner
	f := newFuzz(t)
	harness.Rounds(t, 1, func() {
		boxes := []*fuzzBox{f.start()}
		done := map[string]int{}
		snapshots := 0
		for range 11 {
			i := f.rng.IntN(len(boxes))
			b := boxes[i]
			b.work(100 + f.rng.IntN(300))
			switch k := f.rng.IntN(8); {
			case k < 4 || len(boxes) == 1:
				done["fork"]++
				for _, c := range f.Fork(b.ref, 2) {
					boxes = append(boxes, b.child(c.ID))
				}
			case k < 6:
				done["snapshot"]++
				snapshots++
				name := fmt.Sprintf("snapshot-%d-%d", f.runs, snapshots)
				if _, err := f.Machine.Snapshot(ctx, b.ref, api.SnapshotRequest{Name: name, Memory: k == 5}); err != nil {
					t.Fatal(err)
				}
				then := b.child(b.ref)
				b.work(100)
				r, err := f.Machine.Restore(ctx, name, api.RestoreRequest{})
				if err != nil {
					t.Fatal(err)
				}
				boxes = append(boxes, then.child(f.Children(r)[0].ID))
				if k == 4 {
					if _, err := f.Machine.Rollback(ctx, b.ref, name); err != nil {
						t.Fatal(err)
					}
					b.plan = then.plan
				}
			default:
				done["destroy"]++
				b.check()
				f.Destroy(b.ref)
				boxes = slices.Delete(boxes, i, i+1)
			}
		}
		for _, b := range boxes {
			b.work(0) // as it was before anything of its own
			b.work(50)
			b.check()
		}
		t.Logf("%d sandboxes at the end, done: %v", len(boxes), done)
		for _, b := range boxes {
			f.Destroy(b.ref)
		}
	})
}
