package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// A program makes a sandbox, prepares it, and tries two things in copies of it.
func Example() {
	daemon := exampleDaemon()
	defer daemon.Close()
	if err := tryTwice(context.Background(), daemon.URL); err != nil {
		fmt.Println(err)
	}
	// Output:
	// prepared: ok
	// base-1 and base-2 have the memory of base
	// there is no sandbox nobody: not_found
}

func tryTwice(ctx context.Context, address string) error {
	c, err := client.New(address) // such as unix:/run/user/1000/ramet/ramet.sock
	if err != nil {
		return err
	}
	defer c.Close()

	base, err := c.Sandboxes.Create(ctx, api.CreateRequest{Image: "python", Name: "base"})
	if err != nil {
		return err
	}
	res, err := c.Processes.Exec(ctx, base.ID, api.ExecRequest{Shell: "echo ok"})
	if err != nil {
		return err
	}
	fmt.Print("prepared: ", res.Stdout)

	forked, err := c.Sandboxes.Fork(ctx, base.ID, api.ForkRequest{Names: []string{"base-1", "base-2"}})
	if err != nil {
		return err
	}
	fmt.Printf("%s and %s have the memory of %s\n", forked.Children[0].Sandbox.Name, forked.Children[1].Sandbox.Name, base.Name)

	_, err = c.Sandboxes.Get(ctx, "nobody")
	var failure *api.Error
	if errors.As(err, &failure) {
		fmt.Printf("there is no sandbox nobody: %s\n", failure.Code)
	}
	return c.Sandboxes.Destroy(ctx, base.ID)
}

// exampleDaemon stands for a daemon: it has the one image, and its commands print ok.
func exampleDaemon() *httptest.Server {
	sandboxes := map[string]*api.Sandbox{}
	add := func(name string) *api.Sandbox {
		id := "sbx_aaaaaaaaaaaaaaa" + string(rune('a'+len(sandboxes)))
		sandboxes[id] = &api.Sandbox{ID: id, Name: name, State: api.StateRunning}
		return sandboxes[id]
	}
	svc := &apitest.Service{
		CreateFunc: func(_ context.Context, req api.CreateRequest) (*api.Sandbox, error) { return add(req.Name), nil },
		GetFunc: func(_ context.Context, ref string) (*api.Sandbox, error) {
			return nil, api.NotFound("sandbox", ref)
		},
		DestroyFunc: func(context.Context, string) error { return nil },
		ExecFunc: func(_ context.Context, _ string, _ api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error) {
			_, err := fmt.Fprintln(streams.Stdout, "ok")
			return &api.ExecResult{OK: true}, err
		},
		ForkFunc: func(_ context.Context, _ string, req api.ForkRequest) (*api.ForkResult, error) {
			res := &api.ForkResult{}
			for _, name := range req.Names {
				res.Children = append(res.Children, api.Child{Sandbox: add(name)})
			}
			return res, nil
		},
	}
	return exampleDaemonOf(svc)
}

// exampleDaemonOf serves what answers as a daemon does.
func exampleDaemonOf(svc *apitest.Service) *httptest.Server {
	return httptest.NewServer(rest.New(rest.Config{Service: svc, Identify: apitest.Owner}))
}
