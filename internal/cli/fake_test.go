package cli_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

const (
	baseID  = "sbx_aaaaaaaaaaaaaaaa"
	kidID   = "sbx_bbbbbbbbbbbbbbbb"
	theirID = "sbx_dddddddddddddddd"
	newID   = "sbx_cccccccccccccccc"
	snapID  = "snap_aaaaaaaaaaaaaaaa"
	// ownSnapID was taken by a sandbox by itself, which calls it good.
	ownSnapID = "snap_bbbbbbbbbbbbbbbb"
	imgID     = "img_aaaaaaaaaaaaaaaa"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func fakeSandbox(id, name, parent string) *api.Sandbox {
	return &api.Sandbox{
		ID: id, Name: name, State: api.StateRunning, Image: imgID, ImageName: "python", Parent: parent, CreatedAt: created,
		Limits:   api.Limits{CPUs: 2, MemoryMiB: 512, DiskMiB: 1024, Pids: 100},
		Identity: api.Identity{SandboxID: id, Hostname: cmp.Or(name, id)},
		Isolation: api.Isolation{
			Sentry: api.LayerOn, Systrap: api.LayerOn, Seccomp: api.LayerOn, NoNewPrivs: api.LayerOn, Caps: api.LayerOn,
			UserNS: api.LayerOn, OwnUser: api.LayerOff, Namespaces: api.LayerOn, EmptyRoot: api.LayerOn, Landlock: api.LayerOn, Rlimits: api.LayerOn, Cgroup: api.LayerOff,
		},
		Memory:   &api.Memory{PrivateMiB: 12.5, SharedMiB: 30},
		Disk:     &api.Disk{UsedMiB: 3, LimitMiB: 1024, PrivateMiB: 0.5},
		Metadata: map[string]string{"x": "y", "step": "1"},
	}
}

// find knows two sandboxes by id and name, and another tenant's by its id if the caller
// asks for the things of all tenants.
func find(ctx context.Context, ref string) (*api.Sandbox, error) {
	if ref == theirID && access.From(ctx).AllTenants {
		sb := fakeSandbox(theirID, "main", "")
		sb.Tenant = "acme"
		return sb, nil
	}
	switch ref {
	case baseID, "base":
		return fakeSandbox(baseID, "base", ""), nil
	case kidID, "kid":
		return fakeSandbox(kidID, "kid", baseID), nil
	case "hooked":
		sb := fakeSandbox(kidID, "hooked", baseID)
		sb.Identity.Hooks = []api.HookResult{{Name: "10-fine"}, {Name: "20-seed", ExitCode: 3, Output: "no seed\n"}}
		return sb, nil
	}
	return nil, api.NotFound("sandbox", ref)
}

func inState(state api.State) func(context.Context, string) (*api.Sandbox, error) {
	return func(ctx context.Context, ref string) (*api.Sandbox, error) {
		sb, err := find(ctx, ref)
		if err == nil {
			sb.State = state
		}
		return sb, err
	}
}

// fakeService answers always the same, and fails for certain names.
func fakeService() *apitest.Service {
	snap := &api.Snapshot{
		ID: snapID, Name: "clean", State: api.SnapshotReady, Sandbox: baseID, Image: imgID, CreatedAt: created, OnDisk: true, SizeBytes: 3 << 20, Engine: "1",
	}
	img := &api.Image{ID: imgID, Names: []string{"python", "python:3"}, Digest: "sha256:00", SizeBytes: 97 << 20, CreatedAt: created, Source: "debian", ImageConfig: api.ImageConfig{Cmd: []string{"python3"}}}
	secrets := fakeSecrets()
	return &apitest.Service{
		Files:      apitest.NewMemFiles(),
		CreateFunc: createWith(secrets), GetFunc: find, ExecFunc: fakeExec, ForkFunc: fakeFork, DiffFunc: fakeDiff, MergeFunc: fakeMerge, EventsFunc: fakeEvents, ImageFuncs: apitest.ImageFuncs{
			CreateImageFunc: fakeImage(img),
			ExportFunc:      fakeExport,
			CommitFunc: func(ctx context.Context, ref string, req api.CommitRequest, progress func(api.Progress)) (*api.Image, error) {
				if _, err := find(ctx, ref); err != nil {
					return nil, err
				}
				return fakeImage(img)(ctx, api.ImageRequest{Name: req.Name, Ref: req.Message}, progress)
			},
			PruneImagesFunc: func(_ context.Context, req api.PruneRequest) (*api.Pruned, error) {
				if req.Cache {
					return &api.Pruned{Removed: []string{}, Packages: 9, FreedBytes: 3<<20 + req.CacheUnusedMS<<10}, nil
				}
				return &api.Pruned{Removed: []string{"img_bbbbbbbbbbbbbbbb"}, FreedBytes: 97 << 20}, nil
			},
			ImagesFunc: func(context.Context) ([]api.Image, error) { return []api.Image{*img}, nil },
			GetImageFunc: func(_ context.Context, ref string) (*api.Image, error) {
				if ref == "none" {
					return nil, api.NotFound("image", ref)
				}
				return img, nil
			},
			RemoveImageFunc: func(_ context.Context, ref string) error {
				if ref == "busy" {
					return api.Errorf(api.CodeConflict, "image %q is in use", ref)
				}
				return nil
			},
		},
		VolumeFuncs: apitest.VolumeFuncs{VolumesFunc: func(context.Context) ([]api.Volume, error) { return nil, nil }},
		PauseFunc:   inState(api.StatePaused), ResumeFunc: inState(api.StateRunning),
		HibernateFunc: inState(api.StateHibernated), WakeFunc: inState(api.StateRunning),
		ListFunc: func(ctx context.Context, f api.ListFilter) ([]api.Sandbox, error) {
			all := []api.Sandbox{*fakeSandbox(baseID, "base", ""), *fakeSandbox(kidID, "kid", baseID)}
			if theirs, err := find(ctx, theirID); err == nil {
				all = append(all, *theirs)
			}
			above := cmp.Or(f.Parent, f.Ancestor)
			if above != "" {
				sb, err := find(ctx, above)
				if err != nil {
					return nil, err
				}
				above = sb.ID
			}
			return slices.DeleteFunc(all, func(s api.Sandbox) bool {
				return above != "" && s.Parent != above || (f.State != "" && f.State != s.State) || (f.Metadata != nil && f.Metadata["k"] != "v")
			}), nil
		},
		UpdateFunc: func(ctx context.Context, ref string, req api.UpdateRequest) (*api.Sandbox, error) {
			sb, err := find(ctx, ref)
			if err != nil {
				return nil, err
			}
			if req.Name != nil {
				sb.Name = *req.Name
			}
			sb.Lifecycle = sb.Lifecycle.Changed(req.Lifecycle, created)
			sb.Metadata, err = api.ChangeMetadata(sb.Metadata, req.Metadata)
			return sb, err
		},
		DestroyFunc: func(ctx context.Context, ref string) error { _, err := find(ctx, ref); return err },
		PromoteFunc: func(_ context.Context, ref string) (*api.Sandbox, error) {
			if ref == "base" {
				return nil, api.Errorf(api.CodeWrongState, "sandbox %s is no child", baseID)
			}
			return fakeSandbox(baseID, "base", ""), nil
		},
		ProcessFuncs: fakeProcesses(),
		TokenFuncs: apitest.TokenFuncs{TokensFunc: func(context.Context) ([]api.Token, error) {
			end := time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("", 2*60*60))
			return []api.Token{
				{ID: "tok_aaaaaaaaaaaaaaaa", Name: "ci", Scope: api.ScopeRead, Tree: baseID, CreatedAt: created, ExpiresAt: &end},
				{ID: "tok_bbbbbbbbbbbbbbbb", Tenant: "t", Scope: api.ScopeAdmin, CreatedAt: created},
			}, nil
		}},
		PortsFunc: func(ctx context.Context, ref string) ([]api.Port, error) {
			sb, err := find(ctx, ref)
			if err != nil || sb.ID == kidID {
				return nil, err
			}
			return []api.Port{
				{Port: 8000, Protocol: "tcp", Address: "0.0.0.0", PID: 12, Command: "python3 -m http.server \x1b[31m"},
				{Port: 53, Protocol: "udp", Address: "127.0.0.1"},
			}, nil
		},
		DialPortFunc: func(_ context.Context, _ string, port uint16, _ time.Duration) (service.PortConn, error) {
			return nil, api.Errorf(api.CodeUnavailable, "nothing listens on port %d", port)
		},
		PublishedFuncs: fakePublished(),
		ContextFuncs:   apitest.ContextFuncs{RunCodeFunc: fakeRun},
		StatsFunc: func(_ context.Context, ref string) (*api.Stats, error) {
			if ref == "asleep" {
				return &api.Stats{State: api.StateHibernated, Disk: api.Disk{UsedMiB: 3, PrivateMiB: 20}}, nil
			}
			st := &api.Stats{State: api.StateRunning, Memory: api.Memory{PrivateMiB: 12.5, SharedMiB: 30}, Disk: api.Disk{UsedMiB: 3, LimitMiB: 1024, PrivateMiB: 0.5}, CPUSeconds: 1.25, Processes: 2}
			if ref == "kid" {
				st.Disk.LimitMiB = 0
			}
			return st, nil
		},
		TreeFunc: func(_ context.Context, ref string) ([]*api.TreeNode, error) {
			node := func(id, name, kind, state string, children ...*api.TreeNode) *api.TreeNode {
				return &api.TreeNode{ID: id, Name: name, Kind: kind, State: state, CreatedAt: created, Children: children}
			}
			root := node(baseID, "base", "sandbox", "running",
				node(kidID, "kid", "sandbox", "paused", node(newID, "", "sandbox", "running")),
				node(snapID, "clean", "snapshot", "ready"))
			root.Children[1].Children = []*api.TreeNode{{ID: ownSnapID, Label: "good", Kind: "snapshot", State: "uploading"}}
			if ref == "kid" {
				root = root.Children[0]
			}
			return []*api.TreeNode{root}, nil
		},
		SnapshotFuncs: withPacks(snap, apitest.SnapshotFuncs{
			SnapshotFunc: func(_ context.Context, _ string, req api.SnapshotRequest) (*api.Snapshot, error) {
				out := *snap
				out.Name, out.OnDisk, out.Metadata = req.Name, !req.Memory, req.Metadata
				if req.Wait != nil && !*req.Wait {
					out.State = api.SnapshotUploading
				}
				return &out, nil
			},
			SnapshotsFunc: func(context.Context) ([]api.Snapshot, error) {
				own := *snap
				own.ID, own.Name, own.Label = ownSnapID, "", "good"
				return []api.Snapshot{*snap, own}, nil
			},
			GetSnapshotFunc: func(_ context.Context, ref string) (*api.Snapshot, error) {
				if ref == ownSnapID {
					own := *snap
					own.ID, own.Name, own.Label = ref, "", "good"
					return &own, nil
				}
				if ref != "clean" && ref != snapID {
					return nil, api.NotFound("snapshot", ref)
				}
				return snap, nil
			},
			VerifySnapshotFunc: func(context.Context, string) (*api.Snapshot, error) { return snap, nil },
			DeleteSnapshotFunc: func(_ context.Context, _ string, how api.SnapshotDeletion) error {
				if how.Cascade {
					return nil
				}
				return api.Errorf(api.CodeConflict, "snapshot is in use")
			},
			RestoreFunc: func(ctx context.Context, _ string, req api.RestoreRequest) (*api.ForkResult, error) {
				return fakeFork(ctx, "base", api.ForkRequest{Count: req.Count, Names: req.Names, Network: req.Network})
			},
			RollbackFunc: func(ctx context.Context, ref, snapRef string) (*api.Sandbox, error) {
				if snapRef != "clean" && snapRef != snapID && snapRef != ownSnapID {
					return nil, api.NotFound("snapshot", snapRef)
				}
				return find(ctx, ref)
			},
		}),
		TimelineFuncs: fakeTimeline(),
		TenantFuncs:   fakeTenants(),
		NetworkFuncs:  fakeNetworks(),
		SecretFuncs:   secrets,
		ExploreFuncs:  fakeExplorations(),
	}
}

func fakeCreate(_ context.Context, req api.CreateRequest) (*api.Sandbox, error) {
	switch {
	case req.Image == "none", req.Image == "missing", req.Image == "bad", strings.Contains(req.Image, "/"):
		return nil, api.NotFound("image", req.Image)
	case req.Name == "taken":
		return nil, api.Errorf(api.CodeNameTaken, "name %q is taken", req.Name)
	case req.Name == "full":
		return nil, api.Errorf(api.CodeLimit, "the node has 100 sandboxes")
	case slices.Contains(req.Require, "cgroup"):
		return nil, api.Errorf(api.CodeIsolation, "layer cgroup cannot be had here")
	}
	sb := fakeSandbox(newID, req.Name, "")
	if api.IsID(api.KindImage, req.Image) {
		sb.ImageName = req.Image // it was got first
	}
	sb.TrustHostCA = req.TrustHostCA
	sb.Lifecycle = sb.Lifecycle.Inherited(req.Lifecycle, created)
	sb.AutoCheckpoint = req.AutoCheckpoint
	sb.Env, sb.Metadata, sb.Limits, sb.SelfControl = req.Env, req.Metadata, req.Limits, req.SelfControl
	var err error
	if sb.Network, err = fakeDocument(req.Network); err != nil {
		return nil, err
	}
	return sb, nil
}

// fakeExec is a small set of commands.
func fakeExec(ctx context.Context, ref string, req api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
	if _, err := find(ctx, ref); err != nil {
		return nil, err
	}
	res := &api.ExecResult{DurationMS: 1.5}
	var err error
	switch command := append(req.Argv, "sh")[0]; command {
	case "echo":
		_, err = fmt.Fprintln(s.Stdout, strings.Join(req.Argv[1:], " "))
	case "complain":
		_, err = fmt.Fprintln(s.Stderr, "oh dear")
		res.ExitCode = 1
	case "exit":
		res.ExitCode, err = strconv.Atoi(req.Argv[1])
	case "kill":
		res.ExitCode, res.Signal = 128+9, "SIGKILL"
	case "slow":
		res.ExitCode, res.Signal, res.TimedOut = 128+9, "SIGKILL", true
	case "cat":
		if s.Stdin == nil {
			_, err = io.WriteString(s.Stdout, "no input\n")
		} else {
			_, err = io.Copy(s.Stdout, s.Stdin)
		}
	case "request":
		err = json.NewEncoder(s.Stdout).Encode(req)
	case "sh":
		_, err = fmt.Fprintf(s.Stdout, "shell: %s\n", req.Shell)
	}
	res.OK = res.ExitCode == 0
	return res, err
}

// fakeFork makes children, of which those with names ending in -3 fail and those
// with names beginning with "hooked" have hooks, of which some fail.
func fakeFork(ctx context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error) {
	if _, err := find(ctx, ref); err != nil {
		return nil, err
	}
	res := &api.ForkResult{PauseMS: 14.25, SnapshotMS: 15, ReturnMS: 80}
	for i := range req.Count {
		id, name := "sbx_ddddddddddddddd"+string(rune('a'+i%26)), ""
		if len(req.Names) > 0 {
			name = req.Names[i]
		}
		if strings.HasSuffix(name, "-3") {
			res.Children = append(res.Children, api.Child{Name: name, Error: api.Errorf(api.CodeNoMemory, "no memory for %s", name)})
			continue
		}
		sb := fakeSandbox(id, name, baseID)
		sb.Env, sb.Metadata = req.Env, req.Metadata
		if req.Hold != "" || req.Record {
			sb.Metadata = map[string]string{"hold": string(req.Hold), "record": fmt.Sprint(req.Record)}
		}
		var err error
		if sb.Network, err = fakeDocument(req.Network); err != nil {
			return nil, err
		}
		child := &api.Identity{SandboxID: id, ForkIndex: i}
		if !req.Waits() {
			sb.State = api.StateCreating
			res.Children = append(res.Children, api.Child{Sandbox: sb, Identity: child})
			continue
		}
		if strings.HasPrefix(name, "hooked") {
			child.Hooks = []api.HookResult{{Name: "10-fine", Output: "fine\n"}, {Name: "20-seed", ExitCode: 3, Output: "first\nno \x1bseed\n"}, {Name: "30-last", ExitCode: 1}, {Name: "40-hangs", ExitCode: 137, TimedOut: true, DurationMS: 10_003}}
		}
		res.Children = append(res.Children, api.Child{Sandbox: sb, ReadyMS: 40, Identity: child})
	}
	return res, nil
}

func fakeDiff(_ context.Context, from, to string, req api.DiffRequest) (*api.Diff, error) {
	d := &api.Diff{From: baseID, To: kidID, Base: baseID}
	variables := []api.VariableChange{
		{Context: "python", Language: "python", Name: "gone", Kind: api.Deleted, Type: "str", Size: 50, Repr: "'x\x1b[2J'"},
		{Context: "python", Language: "python", Name: "n", Kind: api.Modified, Type: "int", OldType: "float", Size: 28, OldSize: 24, Repr: "1", OldRepr: "1.5"},
	}
	if from == to {
		if req.Variables {
			d.Variables = variables
		}
		if req.Processes {
			d.Processes = []api.ProcessChange{
				{PID: 3, Kind: api.Modified, Command: "python3", OldCommand: "sh\x1b[2J"}, {PID: 5, Kind: api.Deleted, Command: "sleep 9"}, {PID: 5, Kind: api.Added, Command: "top"},
			}
		}
		return d, nil
	}
	d.Changes = []api.Change{
		{Path: "/etc/motd", Kind: api.Modified, Type: "file", Size: 12, OldSize: 2048, Mode: "0644", OldMode: "0600", Owner: "0:0", Content: true},
		{Path: "/new\x1b[2Jdir", Kind: api.Added, Type: "dir", Mode: "0755", Owner: "0:0"},
		{Path: "/srv/kind", Kind: api.Modified, Type: "symlink", OldType: "dir", Mode: "0777", Owner: "1000:1000", OldOwner: "0:0"},
		{Path: "/srv/new", OldPath: "/srv/old", Kind: api.Renamed, Type: "file", Size: 7, OldSize: 7, Mode: "0644", Owner: "0:0", Xattrs: []string{"user.\aname"}},
		{Path: "/tmp/old", Kind: api.Deleted, Type: "file", Size: 5 << 20, Mode: "0644", Owner: "0:0"},
	}
	if req.Hunks || req.Stat {
		d.Changes[0].Insertions, d.Changes[0].Deletions = 1, 100
		d.Changes[4].NoHunks = api.NoHunksTooLarge
	}
	if req.Hunks {
		d.Changes[0].Hunks = "@@ -1 +1 @@\n-a\tb\x07\n+c\n"
	}
	if req.Variables {
		d.Variables = variables
	}
	if len(req.Paths) > 0 {
		d.Changes = slices.DeleteFunc(d.Changes, func(c api.Change) bool { return !strings.HasPrefix(c.Path, req.Paths[0]) })
	}
	return d, nil
}

func fakeMerge(ctx context.Context, into string, req api.MergeRequest) (*api.MergeResult, error) {
	if !api.IsID(api.KindSnapshot, req.From[len(req.From)-1]) {
		if _, err := find(ctx, req.From[0]); err != nil {
			return nil, err
		}
	}
	r := &api.MergeResult{
		Into: baseID, DryRun: req.DryRun, Strategy: cmp.Or(req.Strategy, api.MergeLeave),
		Sides: []api.MergeSide{{From: kidID, Base: snapID}},
	}
	if len(req.Paths) > 0 {
		return r, nil
	}
	r.Conflicts = []api.MergeConflict{{
		Path: "/srv/text\xff", From: kidID, Reason: "content",
		Base: &api.MergeVersion{Type: "file", Size: 4, Mode: "0644", Owner: "0:0", SHA256: "00112233445566778899"},
		Ours: &api.MergeVersion{Type: "file", Size: 6, Mode: "0644", Owner: "0:0"},
		Hunks: []api.MergeHunk{{
			Base: api.MergeLines{Start: 1, Text: "old\n"}, Ours: api.MergeLines{Start: 1, Text: "ours\x07\n"}, Theirs: api.MergeLines{Start: 1, Text: "\ttheirs\n"},
		}},
	}}
	switch req.Strategy {
	case api.MergeFail:
		return r, nil
	case api.MergeTheirs:
		r.Conflicts[0].Resolved = req.Strategy
	}
	if !req.DryRun {
		r.PauseMS = 2.5
	}
	r.Applied = []api.MergeChange{
		{Path: "/etc/motd", Kind: api.Modified, From: kidID, Merged: true, Type: "file", Size: 12, OldSize: 2048, Mode: "0644", Owner: "0:0"},
		{Path: "/new\x1b[2Jdir", Kind: api.Added, From: kidID, Type: "dir", Mode: "0755", Owner: "0:0"},
		{Path: "/srv/kind", Kind: api.Modified, From: kidID, Type: "symlink", OldType: "dir", Mode: "0777", Owner: "0:0"},
		{Path: "/srv/old\xff", Kind: api.Deleted, From: kidID, Type: "file", Size: 5 << 20, Mode: "0644", Owner: "0:0"},
	}
	return r, nil
}

// fakeLogs has lines of 14, in pieces, and of 12, whose last one has no end; with
// follow, they are written by turns.
func fakeLogs(ctx context.Context, ref string, follow bool, began func(), each func(api.LogPiece) error) error {
	if _, err := find(ctx, ref); err != nil {
		return err
	}
	began()
	piece := func(pid int, seq int64, text string) api.LogPiece {
		return api.LogPiece{PID: pid, Chunk: api.Chunk{Seq: seq, Time: created, Data: []byte(text)}}
	}
	warn := piece(14, 9, "warn")
	warn.Chunk.Stderr = true
	pieces := []api.LogPiece{
		{PID: 14, Chunk: api.Chunk{Lost: 2}}, piece(14, 2, "one\nt"), warn, piece(14, 8, "wo\n"), {PID: 14, Read: &api.Position{NextSeq: 11}},
		piece(12, 0, "three\nfour"), {PID: 12, Read: &api.Position{NextSeq: 10}},
	}
	if follow {
		pieces[2], pieces[5] = pieces[5], pieces[2]
	}
	for _, p := range pieces {
		if err := each(p); err != nil {
			return err
		}
	}
	return nil
}

// fakeProcesses knows 12, which runs and is no child of ours, 13, a terminal, and 14,
// which has ended.
func fakeProcesses() apitest.ProcessFuncs {
	ended := created.Add(time.Minute)
	all := []api.Process{
		{PID: 12, PPID: 1, UID: 1000, Threads: 4, State: "running", Command: "python3 -c \x1b[31m", CPUSeconds: 1.5, MemoryMiB: 20, StartedAt: created},
		{PID: 13, Threads: 1, State: "sleeping", Command: "sh", StartedAt: created, Kept: &api.KeptProcess{Terminal: true, Stdin: true, Inherited: true, NextSeq: 10}},
		{PID: 14, State: "ended", Command: "false", StartedAt: created, Kept: &api.KeptProcess{EndedAt: &ended, NextSeq: 9, Exit: &api.ExecResult{ExitCode: 3}}},
	}
	one := func(_ context.Context, _ string, pid int) (*api.Process, error) {
		for _, p := range all {
			if p.PID == pid {
				return &p, nil
			}
		}
		if pid == 15 { // started without input
			return &api.Process{PID: pid, Kept: &api.KeptProcess{}}, nil
		}
		return nil, api.Errorf(api.CodeNotFound, "no process %d", pid)
	}
	attach := func(ctx context.Context, ref string, pid int, req api.AttachRequest, s api.AttachIO) (*api.Position, error) {
		if pid == 16 { // its idle timeout has ended it
			return &api.Position{Exit: &api.ExecResult{ExitCode: 137, Signal: "SIGKILL", TimedOut: true, Idle: true}}, nil
		}
		if _, err := one(ctx, ref, pid); err != nil {
			return nil, err
		}
		for _, c := range []api.Chunk{
			{Seq: 0, Lost: 2}, {Seq: 2, Time: created, Data: []byte("out\n")}, {Seq: 6, Time: created, Data: []byte("e\xffr"), Stderr: true},
		} {
			if c.Seq < req.From {
				continue
			}
			if err := s.Output(c); err != nil {
				return nil, err
			}
		}
		pos := &api.Position{NextSeq: 9}
		if pid == 14 {
			pos.Exit = &api.ExecResult{ExitCode: 3}
		} else if s.Stdin != nil && req.Follow {
			text, err := io.ReadAll(s.Stdin)
			if err != nil {
				return nil, err
			}
			if err := s.Output(api.Chunk{Seq: 9, Data: []byte("input: " + string(text))}); err != nil {
				return nil, err
			}
			pos.Exit = &api.ExecResult{OK: true}
		}
		return pos, nil
	}
	return apitest.ProcessFuncs{
		ProcessesFunc: func(_ context.Context, _ string, ended bool) ([]api.Process, error) {
			if ended {
				return all, nil
			}
			return all[:2], nil
		},
		ProcessFunc: one, AttachFunc: attach, LogsFunc: fakeLogs,
		StartProcessFunc: func(ctx context.Context, ref string, req api.StartRequest) (*api.Process, error) {
			if _, err := find(ctx, ref); err != nil {
				return nil, err
			}
			switch append(req.Argv, "")[0] {
			case "nosuch":
				return nil, fmt.Errorf("start: %w", api.Errorf(api.CodeNoCommand, "nosuch: command not found"))
			case "/tmp":
				return nil, fmt.Errorf("start: %w", api.Errorf(api.CodeNotExecutable, "/tmp: it is not a regular file"))
			case "idle":
				return &api.Process{PID: 16, Kept: &api.KeptProcess{Terminal: true}}, nil
			}
			return &api.Process{PID: 15, Command: fmt.Sprintf("%+v", req), StartedAt: created, Kept: &api.KeptProcess{}}, nil
		},
		SignalProcessFunc: func(ctx context.Context, ref string, pid int, req api.SignalRequest) error {
			if req.Signal != "TERM" && (req.Signal != "INT" || !req.Group) {
				return api.Invalid("signal", "signal %s", req.Signal)
			}
			if _, err := find(ctx, ref); err != nil {
				return err
			}
			_, err := one(ctx, ref, pid)
			return err
		},
		RemoveProcessFunc: func(context.Context, string, int) error { return nil },
	}
}

// fakeRun runs code that is one of a few words.
func fakeRun(ctx context.Context, ref string, req api.RunCodeRequest, streams api.RunIO) (*api.RunResult, error) {
	if ref != "base" {
		return nil, api.NotFound("sandbox", ref)
	}
	if req.Context == "new" && req.Language == "" {
		return nil, api.NotFound("context", req.Context)
	}
	if req.Language == "node" {
		return nil, api.Errorf(api.CodeUnsupported, "the sandbox has no node")
	}
	r := &api.RunResult{Context: "python", ExecutionCount: 3}
	r.OK = true
	if _, err := fmt.Fprintf(streams.Stdout, "%s %s %d\n", req.Language, req.Context, req.TimeoutMS); err != nil {
		return nil, err
	}
	switch req.Code {
	case "plot":
		r.Result = "<Figure>"
		return r, streams.Result(map[string]json.RawMessage{"text/plain": json.RawMessage(`"<Fig\u001bure>"`), "image/png": json.RawMessage(`"iVBO"`)})
	case "raise":
		r.OK, r.ExitCode = false, 1
		r.Error = &api.RunError{Name: "ValueError", Value: "v", Traceback: "Traceback\n\x1bValueError: v\n"}
	case "die":
		r.OK, r.ExitCode, r.TimedOut = false, 137, true
		r.Error = &api.RunError{Name: api.ContextDied, Value: "the interpreter ended"}
	case "catch":
		r.TimedOut = true
	case "large":
		r.Truncated = true
	case "from stdin\n":
		r.Result = "read"
	}
	return r, nil
}
