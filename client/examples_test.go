package client_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// The daemon is at a URL, its certificate is of an authority of one's own, and the caller has a token.
func ExampleOpen() {
	ca, err := os.ReadFile("ca.pem")
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.Open(client.Config{Address: "https://ramet.example.org:8443", Token: os.Getenv("RAMET_TOKEN"), CA: ca})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	health, err := c.Health(context.Background())
	fmt.Println(health.Version, err)
}

func ExampleSandboxes_Create() {
	c, end := exampleClient()
	defer end()
	sandbox, err := c.Sandboxes.Create(context.Background(), api.CreateRequest{
		Image:     "python",
		Limits:    api.Limits{CPUs: 1, MemoryMiB: 512},
		Network:   &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: []api.NetworkRule{{Address: "packages.example.org"}}}},
		Lifecycle: &api.LifecycleRequest{TTLMS: new(int64(600_000))}, // it ends by itself if this program does not end it
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(sandbox.State)
	// Output: running
}

// The output of a command is written while it runs. A command that fails is a result and no error.
func ExampleProcesses_ExecStream() {
	c, end := exampleClient()
	defer end()
	result, err := c.Processes.ExecStream(context.Background(), "base", api.ExecRequest{
		Shell:     "tr a-z A-Z; exit 3",
		TimeoutMS: 60_000,
	}, api.ExecIO{Stdin: strings.NewReader("hello\n"), Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("exit code", result.ExitCode)
	// Output:
	// HELLO
	// exit code 3
}

// Children have the memory, the processes and the files of the sandbox.
func ExampleSandboxes_Fork() {
	c, end := exampleClient()
	defer end()
	forked, err := c.Sandboxes.Fork(context.Background(), "base", api.ForkRequest{Count: 2, Env: map[string]string{"ROLE": "child"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, child := range forked.Children {
		if child.Error != nil { // one that could not be made does not harm the others
			fmt.Println(child.Error)
			continue
		}
		fmt.Println(child.Sandbox.ID, child.Sandbox.State)
	}
	// Output:
	// sbx_aaaaaaaaaaaaaaaa running
	// sbx_aaaaaaaaaaaaaaab running
}

func ExampleSandboxes_Diff() {
	c, end := exampleClient()
	defer end()
	diff, err := c.Sandboxes.Diff(context.Background(), "base", "child", api.DiffRequest{Paths: []string{"/srv"}, Variables: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, change := range diff.Changes {
		fmt.Println(change.Kind, change.Path)
	}
	for _, change := range diff.Variables {
		fmt.Println(change.Kind, change.Name, change.OldRepr, change.Repr)
	}
	// Output:
	// added /srv/result
	// modified score 0 9
}

// The files of two children are brought to their parent. Conflicts are a result and no error.
func ExampleSandboxes_Merge() {
	c, end := exampleClient()
	defer end()
	merged, err := c.Sandboxes.Merge(context.Background(), "base", api.MergeRequest{From: []string{"one", "two"}, Strategy: api.MergeLeave})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(merged.Applied), "changes,", merged.Unresolved(), "conflicts")
	// Output: 2 changes, 1 conflicts
}

// The parent goes on with the state of its child, files and memory, under its own id.
func ExampleSandboxes_Promote() {
	c, end := exampleClient()
	defer end()
	base, err := c.Sandboxes.Promote(context.Background(), "child")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(base.Name, base.State)
	// Output: base running
}

// What a sandbox may reach is replaced while it runs, and asked for without a connection.
func ExampleNetworks_Set() {
	c, end := exampleClient()
	defer end()
	ctx := context.Background()
	if _, err := c.Networks.Set(ctx, "base", api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: []api.NetworkRule{{Address: "api.example.org"}}}}); err != nil {
		fmt.Println(err)
		return
	}
	for _, host := range []string{"api.example.org", "other.example.org"} {
		test, err := c.Networks.Test(ctx, "base", api.NetworkTest{Host: host, Port: 443})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(host, test.Allowed)
	}
	// Output:
	// api.example.org true
	// other.example.org false
}

// A sandbox is forked into attempts, which are scored, and goes on with the state of the best one.
func ExampleExplorations_Run() {
	c, end := exampleClient()
	defer end()
	found, err := c.Explorations.Run(context.Background(), "base", api.ExplorePlan{
		Run:      api.ExploreRun{Shell: "python3 train.py --rate $RATE", TimeoutMS: 60_000},
		Variants: []api.ExploreVariant{{Env: map[string]string{"RATE": "0.1"}}, {Env: map[string]string{"RATE": "0.3"}}},
		Score:    api.ExploreScore{By: api.ScoreJSON, Path: "metrics.loss", Goal: api.GoalMin},
		Then:     api.ThenPromote,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, i := range found.Winners {
		fmt.Println(found.Children[i].Env["RATE"], *found.Children[i].Score)
	}
	// Output: 0.3 0.25
}

// An exploration goes on by itself, and is watched by whoever knows its id.
func ExampleExplorations_Events() {
	c, end := exampleClient()
	defer end()
	ctx := context.Background()
	begun, err := c.Explorations.Begin(ctx, "base", api.ExplorePlan{Width: 2, Run: api.ExploreRun{Argv: []string{"make", "test"}}, Search: api.ExploreSearch{Strategy: api.SearchFirst}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = c.Explorations.Events(ctx, begun.ID, 0, true, func(ev api.ExplorationEvent) error {
		if ev.Attempt != nil {
			fmt.Println("attempt", ev.Attempt.Index, ev.Attempt.State)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// attempt 1 succeeded
	// attempt 0 stopped
}

// exampleClient returns a client of a daemon that stands for a real one: what it answers is made up.
func exampleClient() (c *client.Client, end func()) {
	daemon := exampleDaemonOf(exampleAnswers())
	c, err := client.New(daemon.URL)
	if err != nil {
		panic(err)
	}
	return c, func() {
		c.Close()
		daemon.Close()
	}
}

func exampleAnswers() *apitest.Service {
	running := func(id, name string) *api.Sandbox { return &api.Sandbox{ID: id, Name: name, State: api.StateRunning} }
	score := 0.25
	exploration := api.Exploration{
		ID: "xpl_aaaaaaaaaaaaaaaa", State: api.ExplorationDone, Winners: []int{1},
		Children: []api.Attempt{{Index: 0}, {Index: 1, Env: map[string]string{"RATE": "0.3"}, Score: &score}},
	}
	return &apitest.Service{
		CreateFunc: func(context.Context, api.CreateRequest) (*api.Sandbox, error) {
			return running("sbx_aaaaaaaaaaaaaaaa", ""), nil
		},
		ExecFunc: func(_ context.Context, _ string, _ api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error) {
			text, err := io.ReadAll(streams.Stdin)
			if err == nil {
				_, err = fmt.Fprint(streams.Stdout, strings.ToUpper(string(text)))
			}
			return &api.ExecResult{ExitCode: 3}, err
		},
		ForkFunc: func(_ context.Context, _ string, req api.ForkRequest) (*api.ForkResult, error) {
			res := &api.ForkResult{}
			for i := range req.Count {
				res.Children = append(res.Children, api.Child{Sandbox: running("sbx_aaaaaaaaaaaaaaa"+string(rune('a'+i)), "")})
			}
			return res, nil
		},
		PromoteFunc: func(context.Context, string) (*api.Sandbox, error) {
			return running("sbx_aaaaaaaaaaaaaaaa", "base"), nil
		},
		DiffFunc: func(context.Context, string, string, api.DiffRequest) (*api.Diff, error) {
			return &api.Diff{
				Changes:   []api.Change{{Path: "/srv/result", Kind: api.Added, Type: "file", Mode: "0644"}},
				Variables: []api.VariableChange{{Context: "python", Name: "score", Kind: api.Modified, OldRepr: "0", Repr: "9"}},
			}, nil
		},
		MergeFunc: func(_ context.Context, _ string, req api.MergeRequest) (*api.MergeResult, error) {
			res := &api.MergeResult{Conflicts: []api.MergeConflict{{Path: "/srv/same"}}}
			for _, side := range req.From {
				res.Applied = append(res.Applied, api.MergeChange{Path: "/srv/" + side})
			}
			return res, nil
		},
		NetworkFuncs: apitest.NetworkFuncs{
			SetNetworkFunc: func(_ context.Context, _ string, req api.NetworkRequest) (*api.SandboxNetwork, error) {
				return &api.SandboxNetwork{}, nil
			},
			TestNetworkFunc: func(_ context.Context, _ string, test api.NetworkTest) (*api.NetworkTestResult, error) {
				return &api.NetworkTestResult{Allowed: test.Host == "api.example.org"}, nil
			},
		},
		ExploreFuncs: apitest.ExploreFuncs{
			ExploreFunc: func(context.Context, string, api.ExplorePlan) (*api.Exploration, error) {
				begun := exploration
				begun.State, begun.Winners = api.ExplorationRunning, nil
				return &begun, nil
			},
			GetExplorationFunc: func(context.Context, string, bool) (*api.Exploration, error) { return &exploration, nil },
			ExplorationEventsFunc: func(_ context.Context, _ string, _ int64, _ bool, began func(), each func(api.ExplorationEvent) error) error {
				began()
				for i, a := range []api.Attempt{{Index: 1, State: api.AttemptSucceeded}, {Index: 0, State: api.AttemptStopped}} {
					if err := each(api.ExplorationEvent{Seq: int64(i + 1), Kind: api.AttemptChanged, Attempt: &a}); err != nil {
						return err
					}
				}
				return nil
			},
		},
	}
}
