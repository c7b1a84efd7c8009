package openapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// example is a request and its answer. Its values have the types of the interface, so that
// they stay valid when the types change.
type example struct{ request, response any }

var exampleTime = time.Date(2026, 11, 24, 9, 30, 0, 0, time.UTC)

func exampleSandbox(id, name, parent string, depth int) *api.Sandbox {
	return &api.Sandbox{
		ID: id, Name: name, State: api.StateRunning, Image: "img_vltyzzyfzrjadzm4", ImageName: "python", Parent: parent, Depth: depth, CreatedAt: exampleTime,
		Limits:   api.Limits{CPUs: 2, MemoryMiB: 1024, DiskMiB: 2048, Pids: 512, OpenFiles: 4096},
		Identity: api.Identity{SandboxID: id, ForkIndex: depth, Hostname: name, MachineID: "0f5d3c1e9a7b4d62a1c8e0b3f4d5a697"},
		Isolation: api.Isolation{
			Sentry: api.LayerOn, Systrap: api.LayerOn, Seccomp: api.LayerOn, NoNewPrivs: api.LayerOn, Caps: api.LayerOn, UserNS: api.LayerOn, OwnUser: api.LayerOff,
			Namespaces: api.LayerOn, EmptyRoot: api.LayerOn, Landlock: api.LayerOn, Rlimits: api.LayerOn, Cgroup: api.LayerOff,
		},
	}
}

// examples are the examples of operations, by id.
var examples = map[string]example{
	"create-sandbox": {
		api.CreateRequest{Image: "python", Name: "base", Limits: api.Limits{CPUs: 2, MemoryMiB: 1024}, Metadata: map[string]string{"task": "42"}},
		exampleSandbox("sbx_h7atcckdshyulosx", "base", "", 0),
	},
	"exec-command": {
		api.ExecRequest{Argv: []string{"python3", "-c", "print(6 * 7)"}, TimeoutMS: 10000},
		api.ExecResult{Stdout: "42\n", OK: true, DurationMS: 21.4},
	},
	"run-code": {
		api.RunCodeRequest{Code: "x = 6 * 7\nx", Language: "python"},
		nil,
	},
	"set-network": {
		api.NetworkRequest{Profile: "host-registries", NetworkPolicy: api.NetworkPolicy{Allow: []api.NetworkRule{{Address: "git.example.com", Ports: []api.PortRange{{First: 22, Last: 22}}}}}},
		nil,
	},
	"test-network": {
		api.NetworkTest{Host: "packages.example.org", Port: 443},
		api.NetworkTestResult{Rule: "default: deny", WouldAllow: "packages.example.org"},
	},
	"set-secret": {
		api.SecretRequest{Value: "sk-…", SecretBinding: api.SecretBinding{Names: []string{"llm.example.com"}, Header: "Authorization"}},
		nil,
	},
	"fork-sandbox": {
		api.ForkRequest{Count: 2, Names: []string{"try-1", "try-2"}},
		api.ForkResult{PauseMS: 7.2, SnapshotMS: 7.9, ReturnMS: 41.5, Children: []api.Child{
			{Sandbox: exampleSandbox("sbx_7vverfzm6bk6ce53", "try-1", "sbx_h7atcckdshyulosx", 1), ReadyMS: 38.1},
			{Name: "try-2", Error: &api.Error{Code: api.CodeNoMemory, Detail: "the host has no memory left"}},
		}},
	},
	"diff-sandboxes": {nil, api.Diff{From: "sbx_h7atcckdshyulosx", To: "sbx_7vverfzm6bk6ce53", Base: "sbx_h7atcckdshyulosx", Changes: []api.Change{
		{Path: "/root/answer.txt", Kind: api.Added, Type: "file", Size: 3, Mode: "0644", Owner: "0:0"},
	}}},
	"merge-sandboxes": {
		api.MergeRequest{From: []string{"try-1", "try-2"}, Strategy: api.MergeLeave},
		nil,
	},
	"create-snapshot": {api.SnapshotRequest{Name: "tests-pass"}, nil},
	"restore-snapshot": {
		api.RestoreRequest{Count: 3},
		nil,
	},
	"start-process": {api.StartRequest{Shell: "python3 -m http.server 8000", Cwd: "/root"}, nil},
	"create-image":  {api.ImageRequest{Name: "python", Build: &api.ImageBuild{From: "debian", Include: []string{"python3", "python3-numpy"}}}, nil},
	"create-token":  {api.TokenRequest{Name: "ci", Scope: api.ScopeAdmin, TTLSeconds: 86400}, nil},
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
		err = api.Invalid("limits.cpus", "it must be at least 0.01")
	case http.StatusNotFound:
		err = api.NotFound("sandbox", "base")
	case http.StatusTooManyRequests:
		exceeded := api.Errorf(api.CodeLimit, "tenant acme may have 10 sandboxes, and has 10")
		exceeded.Exceeded = &api.Exceeded{Limit: "sandboxes", Of: "tenant acme", Max: 10, Used: 10, Asked: 1}
		err = exceeded
	default:
		return nil
	}
	p := httpwire.NewProblem(err)
	p.RequestID = "req_TQV5KUSXUZOHADZVYPLL3FXOON"
	return p
}
