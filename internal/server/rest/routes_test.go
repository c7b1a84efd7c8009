package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// recorder is a Service that writes down its calls and answers with something.
func recorder(calls *[]string) *apitest.Service {
	note := func(name string, args ...any) {
		line := name
		for _, a := range args {
			b, err := json.Marshal(a)
			if err != nil {
				panic(err)
			}
			line += " " + string(b)
		}
		*calls = append(*calls, line)
	}
	one := func(name string) func(context.Context, string) (*api.Sandbox, error) {
		return func(_ context.Context, ref string) (*api.Sandbox, error) {
			note(name, ref)
			s := someSandbox(sbxA)
			s.Memory = &api.Memory{PrivateMiB: 1}
			return s, nil
		}
	}
	forked := &api.ForkResult{PauseMS: 1.5, Children: []api.Child{
		{Sandbox: someSandbox(sbxB), ReadyMS: 2}, {Error: api.Errorf(api.CodeTimeout, "late")},
	}}
	snap := &api.Snapshot{ID: snapA, State: api.SnapshotReady, Sandbox: sbxA, CreatedAt: created}
	img := &api.Image{ID: imgA, CreatedAt: created}
	acme := &api.Tenant{Name: "acme", Quota: api.Quota{Sandboxes: 5}}
	issued := &api.IssuedToken{Token: api.Token{ID: "tok_aaaaaaaaaaaaaaaa", Tenant: "acme", Scope: api.ScopeRead, CreatedAt: created}, Secret: "ramet_x"}
	return &apitest.Service{
		TokenFuncs: apitest.TokenFuncs{
			CreateTokenFunc: func(_ context.Context, req api.TokenRequest) (*api.IssuedToken, error) {
				note("CreateToken", req)
				return issued, nil
			},
			TokensFunc: func(context.Context) ([]api.Token, error) {
				note("Tokens")
				return []api.Token{issued.Token}, nil
			},
			RotateTokenFunc: func(_ context.Context, id string, req api.RotateRequest) (*api.IssuedToken, error) {
				note("RotateToken", id, req)
				return issued, nil
			},
			RemoveTokenFunc: func(_ context.Context, id string) error { note("RemoveToken", id); return nil },
		},
		TenantFuncs: apitest.TenantFuncs{
			TenantsFunc: func(context.Context) ([]api.Tenant, error) {
				note("Tenants")
				return []api.Tenant{*acme}, nil
			},
			GetTenantFunc: func(_ context.Context, name string) (*api.Tenant, error) {
				note("GetTenant", name)
				return acme, nil
			},
			UpdateTenantFunc: func(_ context.Context, name string, req api.TenantUpdate) (*api.Tenant, error) {
				note("UpdateTenant", name, req)
				return acme, nil
			},
			GiveImageFunc: func(_ context.Context, name string, req api.GiveRequest) (*api.Image, error) {
				note("GiveImage", name, req)
				return &api.Image{ID: imgA, CreatedAt: created}, nil
			},
		},
		CreateFunc: func(_ context.Context, req api.CreateRequest) (*api.Sandbox, error) {
			note("Create", req)
			return someSandbox(sbxA), nil
		},
		GetFunc: one("Get"), PauseFunc: one("Pause"), ResumeFunc: one("Resume"), HibernateFunc: one("Hibernate"), WakeFunc: one("Wake"), PromoteFunc: one("Promote"),
		ListFunc: func(_ context.Context, f api.ListFilter) ([]api.Sandbox, error) {
			note("List", f)
			return nil, nil
		},
		UpdateFunc: func(_ context.Context, ref string, req api.UpdateRequest) (*api.Sandbox, error) {
			note("Update", ref, req)
			return someSandbox(sbxA), nil
		},
		DestroyFunc: func(_ context.Context, ref string) error { note("Destroy", ref); return nil },
		ContextFuncs: apitest.ContextFuncs{
			ContextsFunc: func(_ context.Context, ref string) ([]api.Context, error) { note("Contexts", ref); return nil, nil },
			CreateContextFunc: func(_ context.Context, ref string, req api.ContextRequest) (*api.Context, error) {
				note("CreateContext", ref, req)
				return &api.Context{Name: "python-1", Language: "python", State: api.ContextIdle}, nil
			},
			InterruptContextFunc: func(_ context.Context, ref, name string) (bool, error) {
				note("InterruptContext", ref, name)
				return true, nil
			},
			RestartContextFunc: func(_ context.Context, ref, name string) (*api.Context, error) {
				note("RestartContext", ref, name)
				return &api.Context{Name: name, Language: "python", State: api.ContextIdle, Restarts: 1}, nil
			},
			DestroyContextFunc: func(_ context.Context, ref, name string) error { note("DestroyContext", ref, name); return nil },
			RunCodeFunc: func(_ context.Context, ref string, req api.RunCodeRequest, streams api.RunIO) (*api.RunResult, error) {
				note("RunCode", ref, req)
				io.WriteString(streams.Stdout, "out")
				return &api.RunResult{Result: "2", Context: "python"}, streams.Result(map[string]json.RawMessage{"text/plain": json.RawMessage(`"2"`)})
			},
		},
		ProcessFuncs: apitest.ProcessFuncs{
			ProcessesFunc: func(_ context.Context, ref string, all bool) ([]api.Process, error) {
				note("Processes", ref, all)
				return nil, nil
			},
			ProcessFunc: func(_ context.Context, ref string, pid int) (*api.Process, error) {
				note("Process", ref, pid)
				return &api.Process{PID: pid}, nil
			},
			StartProcessFunc: func(_ context.Context, ref string, req api.StartRequest) (*api.Process, error) {
				note("StartProcess", ref, req.Argv)
				return &api.Process{PID: 7}, nil
			},
			WaitProcessFunc: func(_ context.Context, ref string, pid int) (*api.ExecResult, error) {
				note("WaitProcess", ref, pid)
				return &api.ExecResult{ExitCode: 3}, nil
			},
			WriteProcessFunc: func(_ context.Context, ref string, pid int, in io.Reader, end bool) error {
				data, err := io.ReadAll(in)
				note("WriteProcess", ref, pid, string(data), end)
				return err
			},
			SignalProcessFunc: func(_ context.Context, ref string, pid int, req api.SignalRequest) error {
				note("SignalProcess", ref, pid, req)
				return nil
			},
			ResizeProcessFunc: func(_ context.Context, ref string, pid int, size api.TerminalSize) error {
				note("ResizeProcess", ref, pid, size)
				return nil
			},
			RemoveProcessFunc: func(_ context.Context, ref string, pid int) error {
				note("RemoveProcess", ref, pid)
				return nil
			},
		},
		TraceFunc: func(_ context.Context, ref string) (*api.Trace, error) {
			note("Trace", ref)
			return &api.Trace{Now: "1 of process 1: running: init"}, nil
		},
		StatsFunc: func(_ context.Context, ref string) (*api.Stats, error) {
			note("Stats", ref)
			return &api.Stats{State: api.StateRunning, Processes: 3}, nil
		},
		ForkFunc: func(_ context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error) {
			note("Fork", ref, req)
			return forked, nil
		},
		MergeFunc: func(_ context.Context, into string, req api.MergeRequest) (*api.MergeResult, error) {
			note("Merge", into, req)
			return &api.MergeResult{Into: into, Strategy: api.MergeLeave}, nil
		},
		DiffFunc: func(_ context.Context, a, b string, req api.DiffRequest) (*api.Diff, error) {
			note("Diff", a, b, req)
			return &api.Diff{From: a, To: b}, nil
		},
		TreeFunc: func(_ context.Context, ref string) ([]*api.TreeNode, error) { note("Tree", ref); return nil, nil },
		SnapshotFuncs: apitest.SnapshotFuncs{
			SnapshotFunc: func(_ context.Context, ref string, req api.SnapshotRequest) (*api.Snapshot, error) {
				note("Snapshot", ref, req)
				return snap, nil
			},
			SnapshotsFunc: func(context.Context) ([]api.Snapshot, error) {
				note("Snapshots")
				return []api.Snapshot{*snap}, nil
			},
			GetSnapshotFunc: func(_ context.Context, ref string) (*api.Snapshot, error) {
				note("GetSnapshot", ref)
				return snap, nil
			},
			DeleteSnapshotFunc: func(_ context.Context, ref string, how api.SnapshotDeletion) error {
				note("DeleteSnapshot", ref, how)
				return nil
			},
			VerifySnapshotFunc: func(_ context.Context, ref string) (*api.Snapshot, error) {
				note("VerifySnapshot", ref)
				return snap, nil
			},
			RestoreFunc: func(_ context.Context, ref string, req api.RestoreRequest) (*api.ForkResult, error) {
				note("Restore", ref, req)
				return &api.ForkResult{}, nil
			},
			RollbackFunc: func(_ context.Context, ref, snapRef string) (*api.Sandbox, error) {
				note("Rollback", ref, snapRef)
				return someSandbox(sbxA), nil
			},
		},
		ExploreFuncs: apitest.ExploreFuncs{
			ExploreFunc: func(_ context.Context, ref string, plan api.ExplorePlan) (*api.Exploration, error) {
				note("Explore", ref, plan)
				return someExploration(xplA, api.ExplorationRunning), nil
			},
			ExplorationsFunc: func(_ context.Context, f api.ExplorationFilter) ([]api.Exploration, error) {
				note("Explorations", f)
				return nil, nil
			},
			GetExplorationFunc: func(_ context.Context, id string, wait bool) (*api.Exploration, error) {
				note("GetExploration", id, wait)
				return someExploration(id, api.ExplorationDone), nil
			},
			ExplorationEventsFunc: func(_ context.Context, id string, since int64, follow bool, began func(), each func(api.ExplorationEvent) error) error {
				note("ExplorationEvents", id, since, follow)
				began()
				return each(api.ExplorationEvent{Seq: 7, Kind: api.ExplorationChanged, State: api.ExplorationDone})
			},
			CancelExplorationFunc: func(_ context.Context, id string) (*api.Exploration, error) {
				note("CancelExploration", id)
				return someExploration(id, api.ExplorationCanceled), nil
			},
			RemoveExplorationFunc: func(_ context.Context, id string) error { note("RemoveExploration", id); return nil },
		},
		TimelineFuncs: apitest.TimelineFuncs{
			RewindFunc: func(_ context.Context, ref string, step int) (*api.Sandbox, error) {
				note("Rewind", ref, step)
				return someSandbox(sbxA), nil
			},
			TimelineFunc: func(_ context.Context, ref string) ([]api.Step, error) { note("Timeline", ref); return nil, nil },
			BisectFunc: func(_ context.Context, ref string, req api.BisectRequest) (*api.BisectResult, error) {
				note("Bisect", ref, req)
				return &api.BisectResult{}, nil
			},
		},
		NetworkFuncs: recordNetworks(note),
		SecretFuncs:  recordSecrets(note),
		VolumeFuncs:  recordVolumes(note),
		ImageFuncs: apitest.ImageFuncs{
			ImagesFunc:   func(context.Context) ([]api.Image, error) { note("Images"); return []api.Image{*img}, nil },
			GetImageFunc: func(_ context.Context, ref string) (*api.Image, error) { note("GetImage", ref); return img, nil },
			PruneImagesFunc: func(_ context.Context, req api.PruneRequest) (*api.Pruned, error) {
				note("PruneImages", req)
				return &api.Pruned{Removed: []string{"img_a"}, FreedBytes: 7}, nil
			},
			RemoveImageFunc: func(_ context.Context, ref string) error { note("RemoveImage", ref); return nil },
			ExportFunc: func(_ context.Context, ref string, req api.ExportRequest, w io.Writer) error {
				note("Export", ref, req)
				_, err := io.WriteString(w, "archive")
				return err
			},
			CommitFunc: func(_ context.Context, ref string, req api.CommitRequest, progress func(api.Progress)) (*api.Image, error) {
				note("Commit", ref, req)
				return img, nil
			},
			CreateImageFunc: func(_ context.Context, req api.ImageRequest, progress func(api.Progress)) (*api.Image, error) {
				note("CreateImage", req)
				progress(api.Progress{Phase: "unpack", Done: 1, Total: 2})
				return img, nil
			},
		},
	}
}

// recordNetworks writes down the calls about networks.
func recordNetworks(note func(string, ...any)) apitest.NetworkFuncs {
	network := &api.SandboxNetwork{NetworkPolicy: api.NetworkPolicy{}.Normal()}
	return apitest.NetworkFuncs{
		NetworkFunc: func(_ context.Context, ref string) (*api.SandboxNetwork, error) {
			note("Network", ref)
			return network, nil
		},
		SetNetworkFunc: func(_ context.Context, ref string, req api.NetworkRequest) (*api.SandboxNetwork, error) {
			note("SetNetwork", ref, req)
			return network, nil
		},
		TestNetworkFunc: func(_ context.Context, ref string, test api.NetworkTest) (*api.NetworkTestResult, error) {
			note("TestNetwork", ref, test)
			return &api.NetworkTestResult{Rule: "default: deny", WouldAllow: test.Host}, nil
		},
		NetworkLogFunc: func(_ context.Context, ref string, follow bool, began func(), f func(api.NetworkLogEntry) error) error {
			note("NetworkLog", ref, follow)
			began()
			return f(api.NetworkLogEntry{At: created, Sandbox: sbxA, Flow: 7, Name: "a.example.org", Protocol: "dns", Verdict: api.NetworkDenied, Rule: "default: deny"})
		},
		NetworkProfilesFunc: func(context.Context) ([]api.NetworkProfile, error) {
			note("NetworkProfiles")
			return []api.NetworkProfile{{Name: "git-hosts", Source: "file", Error: "it is no YAML"}}, nil
		},
	}
}

// recordSecrets writes down the calls about secrets and held requests.
func recordSecrets(note func(string, ...any)) apitest.SecretFuncs {
	secret := &api.Secret{Name: "KEY", SecretBinding: api.SecretBinding{Names: []string{"a.example.org"}, Header: "X-Key"}, CreatedAt: created, UpdatedAt: created}
	held := []api.HeldRequest{{ID: "req_1", Sandbox: sbxA, Name: "a.example.org", Port: 443, TLS: true, Method: "POST", Target: "/x", State: api.HeldWaiting, Created: created, Changed: created}}
	return apitest.SecretFuncs{
		SecretsFunc: func(context.Context) ([]api.Secret, error) { note("Secrets"); return []api.Secret{*secret}, nil },
		SetSecretFunc: func(_ context.Context, name string, req api.SecretRequest) (*api.Secret, error) {
			note("SetSecret", name, req)
			return secret, nil
		},
		RemoveSecretFunc: func(_ context.Context, name string) error { note("RemoveSecret", name); return nil },
		HeldFunc: func(_ context.Context, ref string) ([]api.HeldRequest, error) {
			note("HeldRequests", ref)
			return held, nil
		},
		ReleaseFunc: func(_ context.Context, ref string, req api.HeldRelease) ([]api.HeldRequest, error) {
			note("ReleaseHeld", ref, req)
			return held, nil
		},
		DropFunc: func(_ context.Context, ref, id string) ([]api.HeldRequest, error) {
			note("DropHeld", ref, id)
			return nil, nil
		},
	}
}

// recordVolumes writes down the calls about volumes.
func recordVolumes(note func(string, ...any)) apitest.VolumeFuncs {
	v := &api.Volume{ID: "vol_aaaaaaaaaaaaaaaa", Name: "data", CreatedAt: created, LimitMiB: 64, Files: 1}
	return apitest.VolumeFuncs{
		CreateVolumeFunc: func(_ context.Context, req api.VolumeRequest) (*api.Volume, error) {
			note("CreateVolume", req)
			return v, nil
		},
		VolumesFunc:      func(context.Context) ([]api.Volume, error) { note("Volumes"); return []api.Volume{*v}, nil },
		GetVolumeFunc:    func(_ context.Context, ref string) (*api.Volume, error) { note("GetVolume", ref); return v, nil },
		RemoveVolumeFunc: func(_ context.Context, ref string) error { note("RemoveVolume", ref); return nil },
	}
}

func TestRoutes(t *testing.T) {
	const one = "/v1/sandboxes/" + sbxA
	var calls []string
	client := testClient(t, apitest.Serve(t, recorder(&calls)))
	for _, c := range []struct {
		method, path, body string
		call               string // the Service's, empty if none
		status             int
		has                string // part of the answer
	}{
		{"POST", "/v1/sandboxes", `{"image":"python","name":"a","limits":{"memory_mib":512},"env":{"K":"v"},"require":["cgroup"]}`,
			`Create {"image":"python","name":"a","limits":{"cpus":0,"memory_mib":512,"disk_mib":0,"pids":0,"open_files":0},"env":{"K":"v"},"require":["cgroup"]}`, 201, `"id":"` + sbxA},
		{"POST", "/v1/sandboxes", `{"image":"python","name":""}`, "", 400, `name: its length must be at least 1`},
		{"POST", one + "/snapshots", `{"name":""}`, "", 400, `name: its length must be at least 1`},
		{"POST", "/v1/sandboxes", `{"image":"` + snapA + `"}`,
			`Create {"image":"` + snapA + `","limits":{"cpus":0,"memory_mib":0,"disk_mib":0,"pids":0,"open_files":0}}`, 201, `"state":"running"`},
		{"GET", "/v1/sandboxes?state=paused&image=python&name=a&metadata=k%3Dv%3Dw&metadata=x%3D", "",
			`List {"State":"paused","Image":"python","Name":"a","Metadata":{"k":"v=w","x":""},"Parent":"","Ancestor":""}`, 200, `{"items":[]}`},
		{"GET", "/v1/sandboxes?parent=base&ancestor=" + snapA, "",
			`List {"State":"","Image":"","Name":"","Metadata":null,"Parent":"base","Ancestor":"` + snapA + `"}`, 200, `{"items":[]}`},
		{"GET", one, "", `Get "` + sbxA + `"`, 200, `"private_mib"`},
		{"GET", "/v1/sandboxes/by-name", "", `Get "by-name"`, 200, sbxA},
		{"PATCH", one, `{"name":"","metadata":{"a":"b","c":null}}`, `Update "` + sbxA + `" {"name":"","metadata":{"a":"b","c":null}}`, 200, sbxA},
		{"DELETE", one, "", `Destroy "` + sbxA + `"`, 204, ""},
		{"POST", one + "/pause", "", `Pause "` + sbxA + `"`, 200, sbxA},
		{"POST", one + "/resume", "", `Resume "` + sbxA + `"`, 200, sbxA},
		{"POST", one + "/hibernate", "", `Hibernate "` + sbxA + `"`, 200, sbxA},
		{"POST", one + "/wake", "", `Wake "` + sbxA + `"`, 200, sbxA},
		{"PATCH", one, `{"lifecycle":{"ttl_ms":60000,"idle_action":"pause"}}`, `Update "` + sbxA + `" {"lifecycle":{"ttl_ms":60000,"idle_action":"pause"}}`, 200, sbxA},
		{"PATCH", one, `{"lifecycle":{"idle_timeout_ms":1}}`, "", 400, "lifecycle.idle_timeout_ms"},
		{"PATCH", one, `{"lifecycle":{"idle_action":"explode"}}`, "", 400, "idle_action"},
		{"POST", one + "/promote", "", `Promote "` + sbxA + `"`, 200, sbxA},
		{"GET", one + "/processes", "", `Processes "` + sbxA + `" false`, 200, `{"items":[]}`},
		{"GET", one + "/processes?all=true", "", `Processes "` + sbxA + `" true`, 200, `{"items":[]}`},
		{"POST", one + "/processes", `{"argv":["a","b"],"terminal":{"cols":80,"rows":24}}`, `StartProcess "` + sbxA + `" ["a","b"]`, 201, `"pid":7`},
		{"GET", one + "/processes/7", "", `Process "` + sbxA + `" 7`, 200, `"pid":7`},
		{"DELETE", one + "/processes/7", "", `RemoveProcess "` + sbxA + `" 7`, 204, ""},
		{"GET", one + "/processes/7/wait", "", `WaitProcess "` + sbxA + `" 7`, 200, `"exit_code":3`},
		{"POST", one + "/processes/7/signal", `{"signal":"INT","group":true}`, `SignalProcess "` + sbxA + `" 7 {"signal":"INT","group":true}`, 204, ""},
		{"POST", one + "/processes/7/resize", `{"cols":80,"rows":24}`, `ResizeProcess "` + sbxA + `" 7 {"cols":80,"rows":24}`, 204, ""},
		{"POST", one + "/processes/7/stdin?end=true", "some input", `WriteProcess "` + sbxA + `" 7 "some input" true`, 204, ""},
		{"POST", one + "/processes/7/stdin", "", `WriteProcess "` + sbxA + `" 7 "" false`, 204, ""},
		{"GET", one + "/contexts", "", `Contexts "` + sbxA + `"`, 200, `{"items":[]}`},
		{"POST", "/v1/tokens", `{"scope":"read","ttl_s":60}`, `CreateToken {"scope":"read","ttl_s":60}`, 201, `"secret":"ramet_x"`},
		{"GET", "/v1/tokens?tenant=other", ``, `Tokens`, 200, `"items":[]`},
		{"POST", "/v1/tokens/tok_aaaaaaaaaaaaaaaa/rotate", `{"grace_s":60}`, `RotateToken "tok_aaaaaaaaaaaaaaaa" {"grace_s":60}`, 200, `"secret":"ramet_x"`},
		{"DELETE", "/v1/tokens/tok_aaaaaaaaaaaaaaaa", ``, `RemoveToken "tok_aaaaaaaaaaaaaaaa"`, 204, ``},
		{"GET", "/v1/tenants", ``, `Tenants`, 200, `"name":"acme"`},
		{"GET", "/v1/tenants/acme", ``, `GetTenant "acme"`, 200, `"sandboxes":5`},
		{"PATCH", "/v1/tenants/acme", `{"quota":{"depth":1}}`, `UpdateTenant "acme" {"quota":{"sandboxes":0,"depth":1,"memory_mib":0,"disk_mib":0,"cpu_seconds":0,"network_connections":0,"network_mbit":0,"network_dns_per_s":0}}`, 200, `"name":"acme"`},
		{"POST", "/v1/tenants/acme/images", `{"image":"python"}`, `GiveImage "acme" {"image":"python"}`, 201, `"id":"` + imgA + `"`},
		{"POST", one + "/contexts", `{"language":"python","cwd":"/srv"}`, `CreateContext "` + sbxA + `" {"language":"python","cwd":"/srv"}`, 201, `"name":"python-1"`},
		{"POST", one + "/contexts/node/interrupt", "", `InterruptContext "` + sbxA + `" "node"`, 200, `"interrupted":true`},
		{"POST", one + "/contexts/node/restart", "", `RestartContext "` + sbxA + `" "node"`, 200, `"restarts":1`},
		{"DELETE", one + "/contexts/node", "", `DestroyContext "` + sbxA + `" "node"`, 204, ""},
		{"POST", one + "/run-code", `{"code":"1+1","timeout_ms":5}`, `RunCode "` + sbxA + `" {"code":"1+1","timeout_ms":5}`, 200,
			`{"stdout":"out","stderr":"","exit_code":0,"ok":false,"signal":"","duration_ms":0,"result":"2","results":[{"text/plain":"2"}],"error":null,"context":"python","execution_count":0}`},
		{"GET", one + "/diff?to=other&variables=1", "", `Diff "` + sbxA + `" "other" {"variables":true}`, 200, `"changes":[]`},
		{"GET", one + "/trace", "", `Trace "` + sbxA + `"`, 200, `"now":"1 of process 1: running: init"`},
		{"GET", one + "/stats", "", `Stats "` + sbxA + `"`, 200, `"processes":3`},
		{"POST", one + "/fork", "", `Fork "` + sbxA + `" {"count":1}`, 200, `"pause_ms":1.5`},
		{"POST", one + "/fork", `{"wait":false}`, `Fork "` + sbxA + `" {"count":1,"wait":false}`, 200, `"pause_ms":1.5`},
		{"POST", one + "/fork", `{"names":["a","b"]}`, `Fork "` + sbxA + `" {"count":2,"names":["a","b"]}`, 200, `"pause_ms":1.5`},
		{"POST", one + "/fork", `{"count":2,"names":["a","b"],"timeout_ms":9}`, `Fork "` + sbxA + `" {"count":2,"names":["a","b"],"timeout_ms":9}`, 200,
			`{"error":{"code":"timeout","detail":"late"}}`},
		{"GET", one + "/diff?to=other&path=/a&path=/b&hunks=1", "", `Diff "` + sbxA + `" "other" {"paths":["/a","/b"],"hunks":true}`, 200, `"changes":[]`},
		{"POST", one + "/merge", `{"from":["a","` + snapA + `"],"paths":["/x"],"strategy":"theirs","dry_run":true}`,
			`Merge "` + sbxA + `" {"from":["a","` + snapA + `"],"paths":["/x"],"dry_run":true,"strategy":"theirs"}`, 200, `"applied":[],"conflicts":[]`},
		{"GET", "/v1/sandboxes/" + snapA + "/diff?to=" + snapA + "&stat=1", "", `Diff "` + snapA + `" "` + snapA + `" {"stat":true}`, 200, `"changes":[]`},
		{"GET", one + "/export", "", `Export "` + sbxA + `" {"Format":"layer","Gzip":false}`, 200, "archive"},
		{"GET", one + "/export?format=oci&gzip=1", "", `Export "` + sbxA + `" {"Format":"oci","Gzip":true}`, 200, "archive"},
		{"GET", "/v1/sandboxes/" + snapA + "/export?format=tar", "", `Export "` + snapA + `" {"Format":"tar","Gzip":false}`, 200, "archive"},
		{"POST", one + "/commit", `{"name":"x","message":"m"}`, `Commit "` + sbxA + `" {"name":"x","message":"m"}`, 201, `"names":[]`},
		{"GET", "/v1/tree", "", `Tree ""`, 200, `{"items":[]}`},
		{"GET", "/v1/tree?sandbox=a", "", `Tree "a"`, 200, `{"items":[]}`},
		{"POST", one + "/snapshots", `{"name":"s","memory":true}`, `Snapshot "` + sbxA + `" {"name":"s","memory":true}`, 201, snapA},
		{"POST", one + "/snapshots", ``, `Snapshot "` + sbxA + `" {}`, 201, snapA},
		{"POST", one + "/rollback", `{"snapshot":"s"}`, `Rollback "` + sbxA + `" "s"`, 200, sbxA},
		{"GET", "/v1/snapshots", "", `Snapshots`, 200, snapA},
		{"GET", "/v1/snapshots?sandbox=" + sbxB, "", `Snapshots`, 200, `{"items":[]}`},
		{"GET", "/v1/snapshots/" + snapA, "", `GetSnapshot "` + snapA + `"`, 200, `"state":"ready"`},
		{"DELETE", "/v1/snapshots/s", "", `DeleteSnapshot "s" {"Cascade":false,"Flatten":false}`, 204, ""},
		{"DELETE", "/v1/snapshots/s?cascade=true", "", `DeleteSnapshot "s" {"Cascade":true,"Flatten":false}`, 204, ""},
		{"DELETE", "/v1/snapshots/s?flatten=true", "", `DeleteSnapshot "s" {"Cascade":false,"Flatten":true}`, 204, ""},
		{"DELETE", "/v1/snapshots/s?flatten=true&cascade=true", "", "", 400, "not both"},
		{"POST", one + "/rollback", `{"step":3}`, `Rewind "` + sbxA + `" 3`, 200, sbxA},
		{"POST", one + "/rollback", `{"step":3,"snapshot":"s"}`, "", 400, "exactly one"},
		{"POST", one + "/rollback", `{}`, "", 400, "exactly one"},
		{"POST", one + "/explorations", `{"width":3,"run":{"shell":"make"}}`, `Explore "` + sbxA + `" {"width":3,"run":{"shell":"make"}}`, 202, `"children":[]`},
		{"POST", one + "/explorations?wait=true", `{"run":{"shell":"make"}}`, `Explore "` + sbxA + `" {"run":{"shell":"make"}} GetExploration "` + xplA + `" true`, 200, `"state":"done"`},
		{"POST", one + "/explorations", `{"run":{"shell":"make"},"score":{"by":"regexp","pattern":"("}}`, "", 400, `"field":"score.pattern"`},
		{"POST", one + "/explorations", `{"width":2}`, "", 400, `exactly one of argv, shell and code`},
		{"GET", "/v1/explorations?sandbox=a&state=done", "", `Explorations {"Sandbox":"a","State":"done"}`, 200, `{"items":[]}`},
		{"GET", "/v1/explorations/" + xplA, "", `GetExploration "` + xplA + `" false`, 200, `"winners":[]`},
		{"GET", "/v1/explorations/" + xplA + "/events?since=3", "", `ExplorationEvents "` + xplA + `" 3 false`, 200, "id: 7\nevent: event\n"},
		{"POST", "/v1/explorations/" + xplA + "/cancel", "", `CancelExploration "` + xplA + `"`, 200, `"state":"canceled"`},
		{"DELETE", "/v1/explorations/" + xplA, "", `RemoveExploration "` + xplA + `"`, 204, ""},
		{"GET", "/v1/explorations/a", "", "", 400, "no"},
		{"GET", one + "/timeline", "", `Timeline "` + sbxA + `"`, 200, `{"items":[]}`},
		{"POST", one + "/bisect", `{"shell":"make test"}`, `Bisect "` + sbxA + `" {"shell":"make test"}`, 200, `"tried":[]`},
		{"POST", "/v1/sandboxes", `{"image":"python","network":{"profile":"open","deny":["a.example.org"]}}`,
			`Create {"image":"python","limits":{"cpus":0,"memory_mib":0,"disk_mib":0,"pids":0,"open_files":0},"network":{"profile":"open","deny":["a.example.org"],"limits":{}}}`, 201, sbxA},
		{"POST", "/v1/sandboxes", `{"image":"python","network":{"profile":"../x"}}`, "", 400, `"field":"network.profile"`},
		{"POST", "/v1/sandboxes", `{"image":"python","network":{"allow":["a..b"]}}`, "", 400, `a..b`},
		{"POST", one + "/fork", `{"network":{}}`, `Fork "` + sbxA + `" {"count":1,"network":{"limits":{}}}`, 200, `"pause_ms":1.5`},
		{"POST", one + "/fork", `{"network":{"accept":["a.example.org"]}}`, "", 400, `only sandboxes are accepted`},
		{"POST", "/v1/snapshots/s/restore", `{"network":{"profile":"none"}}`, `Restore "s" {"count":1,"network":{"profile":"none","limits":{}}}`, 200, `"children":[]`},
		{"POST", "/v1/snapshots/s/restore", `{"network":{"limits":{"connections":70000}}}`, "", 400, "connections"},
		{"GET", one + "/network", "", `Network "` + sbxA + `"`, 200, `{"default":"deny","allow":[],"deny":[],"limits":{}}`},
		{"PUT", one + "/network", `{"default":"allow","deny":["udp:192.0.2.1:53"]}`, `SetNetwork "` + sbxA + `" {"default":"allow","deny":["udp:192.0.2.1:53"],"limits":{}}`, 200, `"default":"deny"`},
		{"PUT", one + "/network", `{"default":"maybe"}`, "", 400, "default"},
		{"PUT", one + "/network", `{"allow":[{"address":"a.example.org","port":22}]}`, "", 400, "allow[0]"},
		{"PUT", one + "/network", "", "", 400, "body"},
		{"POST", one + "/network/test", `{"host":"a.example.org","port":443}`, `TestNetwork "` + sbxA + `" {"host":"a.example.org","port":443}`, 200, `{"allowed":false,"rule":"default: deny","would_allow":"a.example.org"}`},
		{"POST", one + "/network/test", `{"host":""}`, "", 400, "host"},
		{"POST", one + "/network/test", `{"host":"a.example.org","protocol":"icmp"}`, "", 400, "protocol"},
		{"GET", one + "/network/log?follow=true", "", `NetworkLog "` + sbxA + `" true`, 200,
			`data: {"at":"` + created.Format(time.RFC3339) + `","sandbox":"` + sbxA + `","flow":7,"name":"a.example.org","protocol":"dns","verdict":"denied","rule":"default: deny","bytes_in":0,"bytes_out":0}` + "\n\nevent: end\n"},
		{"POST", one + "/fork", `{"hold":"writes","record":true}`, `Fork "` + sbxA + `" {"count":1,"hold":"writes","record":true}`, 200, `"pause_ms":1.5`},
		{"POST", one + "/fork", `{"hold":"all"}`, "", 400, `"field":"hold"`},
		{"GET", "/v1/secrets", "", `Secrets`, 200, `{"items":[{"name":"KEY","names":["a.example.org"],"header":"X-Key","version":0,"created_at":"`},
		{"PUT", "/v1/secrets/KEY", `{"value":"sk-1","names":["a.example.org"],"header":"X-Key","plain":true}`,
			`SetSecret "KEY" {"value":"sk-1","names":["a.example.org"],"header":"X-Key","plain":true}`, 200, `{"name":"KEY","names":["a.example.org"],"header":"X-Key","version":0,"created_at":"`},
		{"PUT", "/v1/secrets/KEY", `{"names":["a.example.org"],"header":"X-Key"}`, "", 400, "value"},
		{"PUT", "/v1/secrets/KEY", `{"value":"","names":["a.example.org"],"header":"X-Key"}`, "", 400, `"field":"value"`},
		{"PUT", "/v1/secrets/KEY", `{"value":"sk-1","names":[],"header":"X-Key"}`, "", 400, `"field":"names"`},
		{"DELETE", "/v1/secrets/KEY", "", `RemoveSecret "KEY"`, 204, ""},
		{"POST", "/v1/volumes", `{"name":"data","limit_mib":64}`, `CreateVolume {"name":"data","limit_mib":64}`, 201, `{"id":"vol_aaaaaaaaaaaaaaaa","name":"data",`},
		{"POST", "/v1/volumes", `{"name":""}`, "", 400, `"field":"name"`},
		{"POST", "/v1/volumes", `{"name":"data","limit_mib":-1}`, "", 400, `"field":"limit_mib"`},
		{"POST", "/v1/volumes", `{"name":"data","limit_mib":null}`, "", 400, `limit_mib: it must not be null: leave it out`},
		{"GET", "/v1/volumes", "", `Volumes`, 200, `{"items":[{"id":"vol_aaaaaaaaaaaaaaaa",`},
		{"GET", "/v1/volumes/data", "", `GetVolume "data"`, 200, `"limit_mib":64`},
		{"DELETE", "/v1/volumes/data", "", `RemoveVolume "data"`, 204, ""},
		{"POST", "/v1/sandboxes", `{"image":"python","volumes":[{"path":"/d"}]}`, "", 400, `volume`},
		{"GET", one + "/held", "", `HeldRequests "` + sbxA + `"`, 200, `{"items":[{"id":"req_1",`},
		{"POST", one + "/held/release", `{"id":"req_1","again":true}`, `ReleaseHeld "` + sbxA + `" {"id":"req_1","again":true}`, 200, `{"items":[{"id":"req_1",`},
		{"POST", one + "/held/release", "", `ReleaseHeld "` + sbxA + `" {}`, 200, `{"items":[`},
		{"POST", one + "/held/release", `{"again":true}`, "", 400, `"field":"again"`},
		{"POST", one + "/held/drop", `{"id":"req_1"}`, `DropHeld "` + sbxA + `" "req_1"`, 200, `{"items":[]}`},
		{"POST", one + "/held/drop", "", `DropHeld "` + sbxA + `" ""`, 200, `{"items":[]}`},
		{"GET", "/v1/network/profiles", "", `NetworkProfiles`, 200, `{"items":[{"name":"git-hosts","source":"file","error":"it is no YAML"}]}`},
		{"POST", "/v1/snapshots/s/verify", "", `VerifySnapshot "s"`, 200, snapA},
		{"POST", "/v1/snapshots/s/restore", `{"count":3}`, `Restore "s" {"count":3}`, 200, `"children":[]`},
		{"GET", "/v1/images", "", `Images`, 200, `"names":[]`},
		{"GET", "/v1/images?name=python", "", `Images`, 200, `{"items":[]}`},
		{"GET", "/v1/images/python", "", `GetImage "python"`, 200, imgA},
		{"GET", "/v1/images/docker.io/library/python:3.12", "", `GetImage "docker.io/library/python:3.12"`, 200, imgA},
		{"GET", "/v1/images/localhost:5000%2Fa%2Fb@sha256:00", "", `GetImage "localhost:5000/a/b@sha256:00"`, 200, imgA},
		{"POST", "/v1/images/prune", `{"cache":true,"cache_unused_ms":5}`, `PruneImages {"cache":true,"cache_unused_ms":5}`, 200, `{"removed":["img_a"],"freed_bytes":7}`},
		{"POST", "/v1/images/prune", "", "PruneImages {}", 200, `{"removed":["img_a"],"freed_bytes":7}`},
		{"DELETE", "/v1/images/a/b", "", `RemoveImage "a/b"`, 204, ""},
		{"POST", "/v1/images", `{"name":"x","path":"/tmp/x.tar"}`, `CreateImage {"name":"x","path":"/tmp/x.tar"}`, 201, imgA},
		{"GET", "/healthz", "", "", 200, `"status":"ok","version":"test"`},
		{"GET", "/readyz", "", "", 200, `"status":"ok"`},
		{"GET", "/openapi.json", "", "", 200, `"openapi":"3.1.0"`},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			calls = nil
			got := ask(t, client, c.method, c.path, c.body)
			if got.status != c.status || !contains(got.body, c.has) {
				t.Errorf("status %d, want %d with %q:\n%s", got.status, c.status, c.has, got.body)
			}
			want := fmt.Sprint([]string{c.call})
			if c.call == "" {
				want = "[]"
			}
			if fmt.Sprint(calls) != want {
				t.Errorf("calls = %s\nwant    %s", fmt.Sprint(calls), want)
			}
			if contains(got.body, "$schema") {
				t.Error("the answer has a $schema")
			}
		})
	}
}

func TestEveryCodeHasItsStatus(t *testing.T) {
	var code api.Code
	c := testClient(t, apitest.Serve(t, &apitest.Service{GetFunc: func(context.Context, string) (*api.Sandbox, error) {
		return nil, fmt.Errorf("look up: %w", api.Errorf(code, "no luck"))
	}}))
	for _, code = range []api.Code{
		api.CodeInvalid, api.CodeNotFound, api.CodeNameTaken, api.CodeConflict, api.CodeWrongState, api.CodeChanged, api.CodeLimit,
		api.CodeNoMemory, api.CodeNoSpace, api.CodeIsolation, api.CodeTimeout, api.CodeCanceled, api.CodeSandboxDied,
		api.CodeHostile, api.CodeCorrupt, api.CodeUnavailable, api.CodeUnsupported, api.CodeInternal, api.CodeNoCommand, api.CodeNotExecutable,
	} {
		got := ask(t, c, "GET", "/v1/sandboxes/a", "")
		p := got.problem(t)
		if got.status != code.HTTPStatus() || p.Code != code || p.Title != code.Title() || p.Detail != "look up: no luck" {
			t.Errorf("%s: status %d, %s", code, got.status, got.body)
		}
	}
}
