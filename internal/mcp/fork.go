package mcp

import (
	"context"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

type forkInput struct {
	Sandbox string   `json:"sandbox" jsonschema:"id or name of the sandbox to fork"`
	Count   int      `json:"count,omitempty" minimum:"1" maximum:"100" jsonschema:"number of children; 1 if absent, or the number of names"`
	Names   []string `json:"names,omitempty" jsonschema:"names of the children, one for each"`
	Network string   `json:"network,omitempty" jsonschema:"profile of what they may reach; what the parent may if absent"`
	Hold    bool     `json:"hold,omitempty" jsonschema:"requests of the children that change something outside wait until a child is promoted, and are dropped with the others"`
	TTL     *int64   `json:"ttl_s,omitempty" minimum:"0" jsonschema:"the children end so many seconds from now; as the parent if absent, 0 is never"`
}

type forkOutput struct {
	PauseMS  float64 `json:"pause_ms" jsonschema:"how long the parent stood still"`
	Children []child `json:"children" jsonschema:"the children"`
}

type child struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"id of the child"`
	Name    string `json:"name,omitempty" jsonschema:"its name"`
	Error   string `json:"error,omitempty" jsonschema:"why there is no child"`
}

// Text implements output.
func (o forkOutput) Text() string {
	var text []string
	for _, ch := range o.Children {
		if ch.Error != "" {
			text = append(text, "no child"+named(ch.Name)+": "+ch.Error)
			continue
		}
		text = append(text, "child "+ch.Sandbox+named(ch.Name))
	}
	return lines(text...)
}

func (s *server) addFork(to *sdk.Server) {
	add(s, to, "fork", "Fork a running sandbox",
		"Make children of a sandbox while it runs. Each child has all of it, in milliseconds: files, variables of interpreters, running processes, servers that listen. Parent and children go on apart. Use it to try several ways from one prepared state, or to keep the state before something risky.",
		adds, fork)
}

func fork(ctx context.Context, c *call, in forkInput) (out forkOutput, err error) {
	req := api.ForkRequest{Count: in.Count, Names: in.Names, Network: network(in.Network), Metadata: map[string]string{"client": label}}
	if in.TTL != nil {
		req.Lifecycle = lifetime(in.TTL, 0)
	}
	if in.Hold {
		req.Hold = api.HoldWrites
	}
	res, err := c.daemon.Sandboxes.Fork(ctx, in.Sandbox, req)
	if err != nil {
		return out, err
	}
	return forked(res)
}

// forked returns the children of a fork. Without any, the error of the first one is that of the fork.
func forked(res *api.ForkResult) (forkOutput, error) {
	out := forkOutput{PauseMS: res.PauseMS, Children: []child{}}
	var first error
	made := 0
	for _, ch := range res.Children {
		switch {
		case ch.Sandbox != nil:
			made++
			out.Children = append(out.Children, child{Sandbox: ch.Sandbox.ID, Name: ch.Sandbox.Name})
		case ch.Error != nil:
			if first == nil {
				first = ch.Error
			}
			out.Children = append(out.Children, child{Name: ch.Name, Error: ch.Error.Error()})
		}
	}
	if made == 0 && first != nil {
		return out, fmt.Errorf("make children: %w", first)
	}
	return out, nil
}
