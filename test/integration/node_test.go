package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/internal/node"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/timer"
	who "ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/paths"
)

// asOwner is the context of what the owner of the daemon does.
var asOwner = who.With(context.Background(), who.Owner(0))

// asOwnerIn is asOwner until the test ends.
func asOwnerIn(t testing.TB) context.Context { return who.With(t.Context(), who.Owner(0)) }

// patience bounds every wait for something that should happen soon, on a machine
// that may be busy with something else.
const patience = 30 * time.Second

// node is a node on directories of its own.
type testNode struct {
	t     testing.TB
	m     *machine.Machine
	paths paths.Paths
	build string // build id: tells this node's sentries from others
	pool  int
	log   *slog.Logger
	// command is the one inside of sandboxes that may control themselves, nil if
	// the test needs none.
	command *os.File
	clock   timer.Clock      // nil for the machine's
	boot    string           // which run of the host it is; empty for the real one
	memory  quota.HostMemory // nil for the machine's
	// observer is told of operations, if it is set.
	observer node.Observer
	// What was there before the node was.
	fds        map[string]int
	goroutines goleak.Option
}

// newNode opens a node with the image "box". At the end of the test all
// sandboxes are destroyed and nothing may be left.
func newNode(t testing.TB) *testNode { return newNodeIn(t, filepath.Join(newDir(t), "data")) }

// newNodeIn opens a node with the data directory data.
func newNodeIn(t testing.TB, data string) *testNode {
	t.Helper()
	n := newClosedNode(t, data)
	n.open()
	t.Cleanup(n.finish)
	return n
}

// newClosedNode makes the directories of a node with the image "box".
func newClosedNode(t testing.TB, data string) *testNode {
	t.Helper()
	p, err := paths.New(filepath.Join(newDir(t), "run"), data)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{p.MakeRuntime(), p.MakeData()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	n := &testNode{t: t, paths: p, build: "test-" + randomHex(), pool: 2, log: slog.New(slog.NewTextHandler(testWriter{t}, nil))}
	n.fds, n.goroutines = openFiles(t), goleak.IgnoreCurrent()
	n.importImage("box")
	return n
}

var dirs atomic.Int32

// newDir makes a directory with a short path.
func newDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(base, strconv.Itoa(int(dirs.Add(1))))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func randomHex() string {
	var b [6]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("manager: %s", bytes.TrimSpace(b))
	return len(b), nil
}

func (n *testNode) importImage(name string) { n.importWith(image.Options{Name: name}) }

func (n *testNode) importWith(opt image.Options) {
	n.t.Helper()
	store, err := image.Open(n.paths.Images())
	if err != nil {
		n.t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(assets, "image.tar"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	if _, err := store.ImportTar(asOwner, f, opt); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) config() node.Config {
	return node.Config{
		Paths: n.paths, Executable: "/proc/self/exe", Engine: n.build, PoolSize: node.FixedPoolSize(n.pool), Command: n.command, Log: n.log, Clock: n.clock, BootID: n.boot, Observer: n.observer, HostMemory: n.memory,
	}
}

func (n *testNode) open() {
	n.t.Helper()
	m, err := machine.Open(asOwner, n.config())
	if err != nil {
		n.t.Fatal(err)
	}
	n.m = m
}

// close closes the node, as a daemon that ends does. Its sandboxes run on.
func (n *testNode) close() {
	n.t.Helper()
	if err := n.m.Close(); err != nil {
		n.t.Fatal(err)
	}
	n.m = nil
}

// reopen closes the node and opens a new one, as a restarted daemon does.
func (n *testNode) reopen() {
	n.t.Helper()
	n.close()
	n.open()
}

// create makes a sandbox of the image "box".
func (n *testNode) create(name string) *api.Sandbox {
	n.t.Helper()
	s, err := n.m.Create(asOwner, api.CreateRequest{Image: "box", Name: name})
	if err != nil {
		n.t.Fatalf("create: %v", err)
	}
	return s
}

// fork makes count children, all of which must succeed.
func (n *testNode) fork(ref string, count int) []*api.Sandbox {
	n.t.Helper()
	r, err := n.m.Fork(asOwner, ref, api.ForkRequest{Count: count})
	if err != nil {
		n.t.Fatalf("fork %s: %v", ref, err)
	}
	return n.children(r)
}

func (n *testNode) children(r *api.ForkResult) []*api.Sandbox {
	n.t.Helper()
	var out []*api.Sandbox
	for i, c := range r.Children {
		if c.Error != nil {
			n.t.Fatalf("child %d: %v", i, c.Error)
		}
		out = append(out, c.Sandbox)
	}
	return out
}

func (n *testNode) destroy(refs ...string) {
	n.t.Helper()
	for _, ref := range refs {
		if err := n.m.Destroy(asOwner, ref); err != nil {
			n.t.Fatalf("destroy %s: %v", ref, err)
		}
	}
}

// output is what a command wrote.
type output struct {
	stdout, stderr bytes.Buffer
	*api.ExecResult
}

// exec runs a command of the guest program, whatever its exit code.
func (n *testNode) exec(ref string, args ...string) (*output, error) {
	return n.run(ref, api.ExecRequest{Argv: append([]string{"guest"}, args...)}, "")
}

func (n *testNode) run(ref string, req api.ExecRequest, stdin string) (*output, error) {
	ctx, cancel := context.WithTimeout(asOwner, patience)
	defer cancel()
	out := &output{}
	xio := api.ExecIO{Stdout: &out.stdout, Stderr: &out.stderr}
	if stdin != "" {
		xio.Stdin = strings.NewReader(stdin)
	}
	var err error
	out.ExecResult, err = n.m.Exec(ctx, ref, req, xio)
	return out, err
}

// guest runs a command of the guest program, which must succeed, and returns its
// output.
func (n *testNode) guest(ref string, args ...string) string {
	n.t.Helper()
	out, err := n.exec(ref, args...)
	if err != nil {
		n.t.Fatalf("%s: %v: %v", ref, args, err)
	}
	if out.ExitCode != 0 {
		n.t.Fatalf("%s: %v: exit code %d: %s%s", ref, args, out.ExitCode, out.stdout.String(), out.stderr.String())
	}
	return out.stdout.String()
}

// hold starts the holder in a sandbox.
func (n *testNode) hold(ref string, args ...string) {
	n.t.Helper()
	n.guest(ref, append([]string{"start"}, args...)...)
}

// reply is what "guest ask" prints: the values of the holder's items, and those
// from before the same call changed them.
type reply struct {
	Before map[string]string `json:"before"`
	Values map[string]string `json:"values"`
	Errors map[string]string `json:"errors"`
}

func (n *testNode) ask(ref string, args ...string) (*reply, error) {
	out, err := n.exec(ref, append([]string{"ask"}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	r := &reply{}
	if err := json.Unmarshal(out.stdout.Bytes(), r); err != nil {
		return nil, fmt.Errorf("%s: %w: exit code %d: %s", ref, err, out.ExitCode, out.stderr.String())
	}
	return r, nil
}

// mustHold checks that all items of the holder in ref, or those named, are in
// the state want.
func (n *testNode) mustHold(ref, want string, items ...string) {
	n.t.Helper()
	if err := n.holds(ref, want, items...); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNode) holds(ref, want string, items ...string) error {
	r, err := n.ask(ref, items...)
	if err != nil {
		return err
	}
	return r.check(ref, "", want)
}

// change checks that all items of the holder in ref are in the state from, and
// brings them into the state to.
func (n *testNode) change(ref, from, to string) {
	n.t.Helper()
	r, err := n.ask(ref, "="+to)
	if err == nil {
		err = r.check(ref, from, to)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func (r *reply) check(ref, before, after string) error {
	var errs []error
	for item, e := range r.Errors {
		errs = append(errs, fmt.Errorf("%s: %s: %s", ref, item, e))
	}
	for item, v := range r.Before {
		if v != before {
			errs = append(errs, fmt.Errorf("%s: %s was %q, not %q", ref, item, v, before))
		}
	}
	for item, v := range r.Values {
		if v != after {
			errs = append(errs, fmt.Errorf("%s: %s is %q, not %q", ref, item, v, after))
		}
	}
	if len(r.Values) == 0 {
		errs = append(errs, fmt.Errorf("%s: holder has no items", ref))
	}
	return errors.Join(errs...)
}

// eventually waits until check returns nil.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	until := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Errorf("%s: %v", what, err)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// wantCode fails the test unless err is of the code.
func wantCode(t testing.TB, err error, code api.Code) {
	t.Helper()
	if got := api.CodeOf(err); got != code {
		t.Errorf("error has code %q, not %q: %v", got, code, err)
	}
}

// discard is output that nobody wants.
func discard() api.ExecIO { return api.ExecIO{Stdout: io.Discard, Stderr: io.Discard} }
