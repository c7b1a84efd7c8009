package fakedaemon

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/workload"
)

// Instance is a sandbox and what is in its memory.
type Instance struct {
	api.Sandbox
	Vars map[string]string
}

// Daemon serves the calls that workloads make. Its functions are called while it
// is locked. A test changes the service's functions before Connect.
type Daemon struct {
	apitest.Service
	// Agent is the warm process: what it prints, and its exit code.
	Agent func(b *Instance, program string) (string, int)
	// FailChild makes children fail, by their index; nil for none.
	FailChild func(i int) *api.Error
	// ImageMissing makes the image be built first.
	ImageMissing bool
	// Stream is how many bytes a dd writes, and a server sends.
	Stream int
	// Silent is of a background process, which has no output then.
	Silent bool

	mu        sync.Mutex
	instances map[string]*Instance
	snaps     map[string]api.Snapshot
	next      int
	// attached are the sandboxes whose process was attached to.
	attached []string
	servers  sync.WaitGroup
	explored *api.Exploration // the last one
	// Built is the last image request.
	Built api.ImageRequest
	// Most is how many sandboxes there were at a time.
	Most int
}

// New returns a daemon without sandboxes.
func New() *Daemon {
	d := &Daemon{instances: map[string]*Instance{}, snaps: map[string]api.Snapshot{}}
	d.CreateFunc, d.ListFunc, d.DestroyFunc, d.ExecFunc, d.StatsFunc = d.create, d.list, d.destroy, d.exec, d.stats
	d.RunCodeFunc = d.runCode
	d.Files, d.StartProcessFunc, d.AttachFunc, d.DialPortFunc = &files{}, d.startProcess, d.attach, d.dialPort
	d.ForkFunc, d.PromoteFunc, d.DiffFunc = d.fork, d.promote, d.diff
	d.ExploreFunc, d.GetExplorationFunc = d.explore, d.exploration
	d.SnapshotFunc, d.SnapshotsFunc, d.DeleteSnapshotFunc, d.RestoreFunc = d.snapshot, d.snapshots, d.deleteSnapshot, d.restore
	d.GetImageFunc, d.CreateImageFunc = d.image, d.createImage
	return d
}

// Connect serves the daemon for the length of the test.
func (d *Daemon) Connect(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New("unix:" + apitest.Serve(t, d))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	t.Cleanup(d.servers.Wait)
	return c
}

// Left returns how many sandboxes and snapshots there are.
func (d *Daemon) Left() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.instances) + len(d.snaps)
}

func (d *Daemon) add(name, parent string, index int, metadata, vars map[string]string) *Instance {
	d.next++
	id := fmt.Sprintf("sbx_%s", strings.Repeat(string(rune('a'+d.next%26)), 13)+fmt.Sprintf("%c%c%c", 'a'+d.next/676%26, 'a'+d.next/26%26, 'a'+d.next%26))
	b := &Instance{Vars: maps.Clone(vars), Sandbox: api.Sandbox{
		ID: id, Name: name, State: api.StateRunning, Parent: parent, Metadata: metadata,
		Identity: api.Identity{SandboxID: id, ForkIndex: index, Hostname: "host-" + id[4:]},
	}}
	if b.Vars == nil {
		b.Vars = map[string]string{}
	}
	d.instances[id] = b
	d.Most = max(d.Most, len(d.instances))
	return b
}

func (d *Daemon) find(ref string) (*Instance, error) {
	if b := d.instances[ref]; b != nil {
		return b, nil
	}
	return nil, api.NotFound("sandbox", ref)
}

func (d *Daemon) create(_ context.Context, req api.CreateRequest) (*api.Sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sb := d.add(req.Name, "", 0, req.Metadata, nil).Sandbox
	return &sb, nil
}

// runCode knows one cell.
func (d *Daemon) runCode(_ context.Context, ref string, req api.RunCodeRequest, _ api.RunIO) (*api.RunResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.find(ref); err != nil {
		return nil, err
	}
	if req.Code != "1+1" {
		return &api.RunResult{Error: &api.RunError{Name: "NameError", Value: req.Code}}, nil
	}
	return &api.RunResult{Result: "2"}, nil
}

func (d *Daemon) list(_ context.Context, f api.ListFilter) ([]api.Sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []api.Sandbox{}
next:
	for _, b := range d.instances {
		for k, v := range f.Metadata {
			if b.Metadata[k] != v {
				continue next
			}
		}
		list = append(list, b.Sandbox)
	}
	return list, nil
}

func (d *Daemon) destroy(_ context.Context, ref string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.find(ref); err != nil {
		return err
	}
	delete(d.instances, ref)
	return nil
}

func (d *Daemon) stats(_ context.Context, ref string) (*api.Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.find(ref)
	return &api.Stats{Memory: api.Memory{PrivateMiB: 7}}, err
}

func (d *Daemon) exec(_ context.Context, ref string, req api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error) {
	if len(req.Argv) > 0 && req.Argv[0] == "dd" {
		return d.dd(streams.Stdout)
	}
	program := ""
	if streams.Stdin != nil {
		text, err := io.ReadAll(streams.Stdin)
		if err != nil {
			return nil, err
		}
		program = string(text)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b, err := d.find(ref)
	if err != nil {
		return nil, err
	}
	out, code := "", 0
	if strings.Contains(req.Shell, "hostname") {
		out = b.Identity.Hostname + "\n"
	}
	if d.Agent != nil && (strings.Contains(req.Shell, workload.AskPath) || len(req.Argv) > 0 && req.Argv[0] == workload.AskPath) {
		var answer string
		answer, code = d.Agent(b, program)
		out += answer
	}
	if _, err := io.WriteString(streams.Stdout, out); err != nil {
		return nil, err
	}
	return &api.ExecResult{OK: code == 0, ExitCode: code}, nil
}

// explore makes attempts that have succeeded at once; that of FailChild has failed.
func (d *Daemon) explore(_ context.Context, ref string, plan api.ExplorePlan) (*api.Exploration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.find(ref); err != nil {
		return nil, err
	}
	x := &api.Exploration{ID: "xpl_aaaaaaaaaaaaaaaa", Sandbox: ref, State: api.ExplorationDone}
	for i := range plan.Width {
		a := api.Attempt{Index: i, State: api.AttemptSucceeded}
		if d.FailChild != nil && d.FailChild(i) != nil {
			a.State, a.Error = api.AttemptFailed, d.FailChild(i)
		}
		if plan.Keep == api.KeepAll {
			a.Sandbox, a.Kept = d.add("", ref, i, plan.Metadata, nil).ID, true
		}
		x.Children = append(x.Children, a)
	}
	d.explored = x
	return x, nil
}

func (d *Daemon) exploration(_ context.Context, id string, _ bool) (*api.Exploration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.explored == nil || d.explored.ID != id {
		return nil, api.NotFound("exploration", id)
	}
	return d.explored, nil
}

func (d *Daemon) fork(_ context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	parent, err := d.find(ref)
	if err != nil {
		return nil, err
	}
	return d.children(parent, req.Count, req.Names), nil
}

func (d *Daemon) children(parent *Instance, n int, names []string) *api.ForkResult {
	res := &api.ForkResult{PauseMS: 12.5}
	for i := range n {
		if d.FailChild != nil {
			if err := d.FailChild(i); err != nil {
				res.Children = append(res.Children, api.Child{Error: err})
				continue
			}
		}
		name := ""
		if names != nil {
			name = names[i]
		}
		sb := d.add(name, parent.ID, i, parent.Metadata, parent.Vars).Sandbox
		res.Children = append(res.Children, api.Child{Sandbox: &sb})
	}
	return res
}

func (d *Daemon) promote(_ context.Context, ref string) (*api.Sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	child, err := d.find(ref)
	if err != nil {
		return nil, err
	}
	parent, err := d.find(child.Parent)
	if err != nil {
		return nil, err
	}
	parent.Vars = child.Vars
	delete(d.instances, ref)
	return &parent.Sandbox, nil
}

// diff has a file for each plan that ran, and one that changed.
func (d *Daemon) diff(_ context.Context, from, to string, _ api.DiffRequest) (*api.Diff, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, errA := d.find(from)
	b, errB := d.find(to)
	if errA != nil || errB != nil {
		return nil, api.NotFound("sandbox", from)
	}
	return &api.Diff{From: from, To: to, Changes: []api.Change{
		{Path: "/root/" + b.Vars["plan"] + ".npy", Kind: api.Added, Size: 8},
		{Path: "/root/" + a.Vars["plan"] + ".npy", Kind: api.Deleted, Size: 8},
		{Path: "/root/result.txt", Kind: api.Modified, Size: 8, Hunks: "-old\n+new\n"},
	}}, nil
}

const snapID = "snap_aaaaaaaaaaaaaaaa"

func (d *Daemon) snapshot(_ context.Context, ref string, req api.SnapshotRequest) (*api.Snapshot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.find(ref); err != nil {
		return nil, err
	}
	s := api.Snapshot{ID: snapID, Sandbox: ref, State: api.SnapshotReady, Metadata: req.Metadata, PauseMS: 3}
	d.snaps[s.ID] = s
	return &s, nil
}

func (d *Daemon) snapshots(context.Context) ([]api.Snapshot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []api.Snapshot{}
	for _, s := range d.snaps {
		list = append(list, s)
	}
	return list, nil
}

func (d *Daemon) deleteSnapshot(_ context.Context, ref string, _ api.SnapshotDeletion) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.snaps, ref)
	return nil
}

func (d *Daemon) restore(_ context.Context, ref string, req api.RestoreRequest) (*api.ForkResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of, err := d.find(d.snaps[ref].Sandbox)
	if err != nil {
		return nil, err
	}
	return d.children(of, req.Count, req.Names), nil
}

func (d *Daemon) image(_ context.Context, ref string) (*api.Image, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ImageMissing || ref != workload.PythonImage {
		return nil, api.NotFound("image", ref)
	}
	return &api.Image{ID: "img_aaaaaaaaaaaaaaaa", SizeBytes: 3 << 20}, nil
}

func (d *Daemon) createImage(_ context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
	for i, phase := range []string{"download", "unpack", "unpack", "seal"} {
		progress(api.Progress{Phase: phase, Done: int64(i)})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Built, d.ImageMissing = req, false
	return &api.Image{ID: "img_bbbbbbbbbbbbbbbb", SizeBytes: 3 << 20}, nil
}
