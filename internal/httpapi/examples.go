package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/sandbox"
)

// example is a request and its answer. Its values are of the types that are decoded and
// encoded, so that they stay examples when these change.
type example struct{ request, response any }

var exampleTime = time.Date(2026, 11, 24, 9, 30, 0, 0, time.UTC)

func exampleSandbox(id, name, parent string, depth int) *sandbox.Sandbox {
	return &sandbox.Sandbox{
		ID: id, Name: name, State: sandbox.StateRunning, Image: "img_vltyzzyfzrjadzm4", ImageName: "python", Parent: parent, Depth: depth, CreatedAt: exampleTime,
		Limits:   sandbox.Limits{CPUs: 2, MemoryMiB: 1024, DiskMiB: 2048, Pids: 512, OpenFiles: 4096},
		Identity: sandbox.Identity{SandboxID: id, ForkIndex: depth, Hostname: name, MachineID: "0f5d3c1e9a7b4d62a1c8e0b3f4d5a697"},
		Isolation: sandbox.Isolation{
			Sentry: sandbox.LayerOn, Systrap: sandbox.LayerOn, Seccomp: sandbox.LayerOn, NoNewPrivs: sandbox.LayerOn, Caps: sandbox.LayerOn, UserNS: sandbox.LayerOn, OwnUser: sandbox.LayerOff,
			Namespaces: sandbox.LayerOn, EmptyRoot: sandbox.LayerOn, Rlimits: sandbox.LayerOn, Cgroup: sandbox.LayerOff,
		},
	}
}

// examples are those of operations, by id.
var examples = map[string]example{
	"create-sandbox": {
		sandbox.CreateRequest{Image: "python", Name: "base", Limits: sandbox.Limits{CPUs: 2, MemoryMiB: 1024}, Metadata: map[string]string{"task": "42"}},
		exampleSandbox("sbx_h7atcckdshyulosx", "base", "", 0),
	},
	"exec-command": {
		sandbox.ExecRequest{Argv: []string{"python3", "-c", "print(6 * 7)"}, TimeoutMS: 10000},
		sandbox.ExecResult{Stdout: "42\n", OK: true, DurationMS: 21.4},
	},
	"run-code": {
		sandbox.RunCodeRequest{Code: "x = 6 * 7\nx", Language: "python"},
		nil,
	},
	"fork-sandbox": {
		sandbox.ForkRequest{Count: 2, Names: []string{"try-1", "try-2"}},
		sandbox.ForkResult{PauseMS: 7.2, SnapshotMS: 7.9, ReturnMS: 41.5, Children: []sandbox.Child{
			{Sandbox: exampleSandbox("sbx_7vverfzm6bk6ce53", "try-1", "sbx_h7atcckdshyulosx", 1), ReadyMS: 38.1},
			{Name: "try-2", Error: &sandbox.Error{Code: sandbox.CodeNoMemory, Detail: "the host has no memory left"}},
		}},
	},
	"diff-sandboxes": {nil, sandbox.Diff{From: "sbx_h7atcckdshyulosx", To: "sbx_7vverfzm6bk6ce53", Base: "sbx_h7atcckdshyulosx", Changes: []sandbox.Change{
		{Path: "/root/answer.txt", Kind: sandbox.Added, Type: "file", Size: 3, Mode: "0644", Owner: "0:0"},
	}}},
	"merge-sandboxes": {
		sandbox.MergeRequest{From: []string{"try-1", "try-2"}, Strategy: sandbox.MergeLeave},
		nil,
	},
	"create-snapshot": {sandbox.SnapshotRequest{Name: "tests-pass"}, nil},
	"restore-snapshot": {
		sandbox.RestoreRequest{Count: 3},
		nil,
	},
	"start-process": {sandbox.StartRequest{Shell: "python3 -m http.server 8000", Cwd: "/root"}, nil},
	"create-image":  {sandbox.ImageRequest{Name: "python", Build: &sandbox.ImageBuild{From: "debian", Include: []string{"python3", "python3-numpy"}}}, nil},
	"create-token":  {sandbox.TokenRequest{Name: "ci", Scope: sandbox.ScopeAdmin, TTLSeconds: 86400}, nil},
}

// addTo gives an operation the example.
func (e example) addTo(op *huma.Operation) {
	const mediaType = "application/json"
	if e.request != nil {
		op.RequestBody.Content[mediaType].Example = e.request
	}
	if e.response == nil {
		return
	}
	for _, status := range []int{http.StatusOK, http.StatusCreated} {
		if r := op.Responses[strconv.Itoa(status)]; r != nil && r.Content[mediaType] != nil {
			r.Content[mediaType].Example = e.response
		}
	}
}

// exampleProblem returns an example of a problem with this status, or nil.
func exampleProblem(status int) any {
	var err error
	switch status {
	case http.StatusBadRequest:
		err = sandbox.Invalid("limits.cpus", "it must be at least 0.01")
	case http.StatusNotFound:
		err = sandbox.NotFound("sandbox", "base")
	case http.StatusTooManyRequests:
		exceeded := sandbox.Errorf(sandbox.CodeLimit, "tenant acme may have 10 sandboxes, and has 10")
		exceeded.Exceeded = &sandbox.Exceeded{Limit: "sandboxes", Of: "tenant acme", Max: 10, Used: 10, Asked: 1}
		err = exceeded
	default:
		return nil
	}
	p := httpwire.NewProblem(err)
	p.RequestID = "req_TQV5KUSXUZOHADZVYPLL3FXOON"
	return p
}
