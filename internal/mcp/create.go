package mcp

import (
	"context"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

// label marks sandboxes that were made by tools.
const label = "mcp"

// defaultTTL is when a sandbox ends that an agent forgets, in seconds.
const defaultTTL = 8 * 3600

type createInput struct {
	Image   string            `json:"image,omitempty" jsonschema:"image, such as python (the default), a name that ramet image ls shows, a reference as docker.io/library/node:22-slim, or a snapshot's id or name"`
	Name    string            `json:"name,omitempty" jsonschema:"name to give the sandbox: tools take it in place of the id"`
	Network string            `json:"network,omitempty" jsonschema:"profile of what it may reach: none (the default), open, host-registries (the package registries of this machine), or another one of the daemon's"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"environment of its commands"`
	Memory  int64             `json:"memory_mib,omitempty" minimum:"0" jsonschema:"limit of its memory in MiB; 0 is the default of the daemon"`
	TTL     *int64            `json:"ttl_s,omitempty" minimum:"0" jsonschema:"the sandbox ends so many seconds from now; 28800 if absent, 0 is never"`
}

// sandboxOutput is one sandbox.
type sandboxOutput struct {
	Sandbox string `json:"sandbox" jsonschema:"id of the sandbox"`
	Name    string `json:"name,omitempty" jsonschema:"its name"`
	State   string `json:"state" jsonschema:"its state"`
	Image   string `json:"image" jsonschema:"its image"`
	Note    string `json:"note,omitempty" jsonschema:"what to know about it"`
}

// Text implements output.
func (o sandboxOutput) Text() string {
	return lines(fmt.Sprintf("sandbox %s%s is %s, of image %s", o.Sandbox, named(o.Name), o.State, o.Image), o.Note)
}

func named(name string) string {
	if name == "" {
		return ""
	}
	return " (" + name + ")"
}

func describe(sb *api.Sandbox) sandboxOutput {
	image := sb.ImageName
	if image == "" {
		image = sb.Image
	}
	return sandboxOutput{Sandbox: sb.ID, Name: sb.Name, State: string(sb.State), Image: image, Note: sb.Reason}
}

func lifetime(seconds *int64, otherwise int64) *api.LifecycleRequest {
	ms := otherwise * 1000
	if seconds != nil {
		ms = *seconds * 1000
	}
	return &api.LifecycleRequest{TTLMS: &ms}
}

// network returns the request for a profile; nil if nothing is said about it.
func network(profile string) *api.NetworkRequest {
	if profile == "" {
		return nil
	}
	return &api.NetworkRequest{Profile: profile}
}

func (s *server) addCreate(to *sdk.Server) {
	add(s, to, "create", "Create a sandbox",
		"Create a sandbox: an isolated machine with files and processes of its own, in which ramet_exec runs commands. Use it once for a task, prepare it, and ramet_fork it from then on. The first sandbox of an image may take a minute, because the image is built or pulled.",
		adds, create)
}

func create(ctx context.Context, c *call, in createInput) (out sandboxOutput, err error) {
	req := api.CreateRequest{
		Image: in.Image, Name: in.Name, Env: in.Env, Network: network(in.Network), Lifecycle: lifetime(in.TTL, defaultTTL),
		Metadata: map[string]string{"client": label}, Limits: api.Limits{MemoryMiB: in.Memory},
	}
	if req.Image == "" {
		req.Image = "python"
	}
	// An image that is there needs no progress.
	policy := req.PullPolicy()
	req.Pull = api.PullNever
	sb, err := c.daemon.Sandboxes.Create(ctx, req)
	if policy != api.PullNever && api.CodeOf(err) == api.CodeNotFound {
		req.Pull = policy
		img, ierr := c.daemon.Images.Create(ctx, req.ImageRequest(), func(p api.Progress) {
			c.progress(ctx, 0, 0, p.Phase+" "+p.Detail)
		})
		if ierr != nil {
			return out, ierr
		}
		req.Image, req.Pull = img.ID, api.PullNever
		sb, err = c.daemon.Sandboxes.Create(ctx, req)
	}
	if err != nil {
		return out, err
	}
	return describe(sb), nil
}
