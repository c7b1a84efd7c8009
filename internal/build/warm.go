package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
)

const (
	// readyTimeout bounds how long a warm command may take to be ready, and readyPause is the time between questions.
	readyTimeout = 10 * time.Minute
	readyPause   = 100 * time.Millisecond
)

// WarmRequest asks for a snapshot with the processes of a command.
type WarmRequest struct {
	Image   *api.Image
	Name    string   // of the snapshot
	Command []string // program and arguments
	// Ready is a command that succeeds once Command is ready. If it is empty, it is the health check of the image. If
	// there is none either, Command is ready when it has ended.
	Ready   []string
	Network *api.NetworkRequest // while it becomes ready; nil for none
	// TrustHostCA is as of Request.
	TrustHostCA *bool
	Out         io.Writer
}

// CheckWarm returns an error if a name cannot be that of a warm state.
func CheckWarm(ctx context.Context, c *client.Client, name string) error {
	if err := api.ValidName("tag", name); err != nil {
		return err
	}
	img, err := c.Images.Get(ctx, name)
	if err == nil && slices.Contains(img.Names, name) {
		return api.Errorf(api.CodeNameTaken, "an image has the name %q, and create would prefer it: remove it with 'ramet image rm %s', or use another name", name, name)
	}
	if err != nil && api.CodeOf(err) != api.CodeNotFound {
		return err
	}
	return nil
}

// Warm runs a command in a sandbox of an image and makes a snapshot of it with its processes. A snapshot of that name
// is replaced.
func Warm(ctx context.Context, c *client.Client, req WarmRequest) (*api.Snapshot, error) {
	b := &builder{Request: Request{Network: req.Network, TrustHostCA: req.TrustHostCA, Out: req.Out}, client: c, ctx: ctx}
	defer b.end()
	id, err := b.start(state{image: req.Image.ID})
	if err != nil {
		return nil, err
	}
	b.say("WARM %s", strings.Join(req.Command, " "))
	if err := b.becomeReady(id, &req); err != nil {
		return nil, fmt.Errorf("warm command: %w", err)
	}
	// Sandboxes of the snapshot inherit neither the network of the build nor its idle timeout.
	if _, err := c.Networks.Set(ctx, id, *closed()); err != nil {
		return nil, err
	}
	never := int64(0)
	if _, err := c.Sandboxes.Update(ctx, id, api.UpdateRequest{Lifecycle: &api.LifecycleRequest{IdleTimeoutMS: &never, IdleAction: api.IdleHibernate}}); err != nil {
		return nil, err
	}
	old, err := c.Snapshots.Get(ctx, req.Name)
	if err == nil {
		err = c.Snapshots.Delete(ctx, old.ID, api.SnapshotDeletion{Flatten: true})
	}
	if err != nil && api.CodeOf(err) != api.CodeNotFound {
		return nil, fmt.Errorf("replace the snapshot: %w", err)
	}
	return c.Snapshots.Create(ctx, id, api.SnapshotRequest{Name: req.Name, Metadata: map[string]string{MetaImage: req.Image.ID}})
}

// ready returns the command that tells whether a warm command is ready, or nil.
func (r *WarmRequest) ready() []string {
	if len(r.Ready) > 0 {
		return r.Ready
	}
	h := r.Image.Healthcheck
	if h == nil || len(h.Test) < 2 {
		return nil
	}
	switch h.Test[0] {
	case "CMD":
		return h.Test[1:]
	case "CMD-SHELL":
		return Shell(strings.Join(h.Test[1:], " "))
	}
	return nil
}

// Shell returns the arguments that run a text by a shell, none for an empty one.
func Shell(text string) []string {
	if text == "" {
		return nil
	}
	return []string{"/bin/sh", "-c", text}
}

// becomeReady starts the command and waits until it is ready.
func (b *builder) becomeReady(id string, req *WarmRequest) error {
	p, err := b.client.Processes.Start(b.ctx, id, api.StartRequest{Argv: req.Command})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(b.ctx, readyTimeout, api.Errorf(api.CodeTimeout, "it is not ready after %v: a server needs --ready COMMAND", readyTimeout))
	defer cancel()
	argv := req.ready()
	pause := time.NewTicker(readyPause)
	defer pause.Stop()
	for {
		now, err := b.client.Processes.Get(ctx, id, p.PID)
		if err == nil && now.Kept != nil && now.Kept.Exit != nil {
			if !now.Kept.Exit.OK {
				return errors.Join(api.Errorf(api.CodeUnsupported, "it ended with exit code %d", now.Kept.Exit.ExitCode), b.show(ctx, id, p.PID))
			}
			if argv == nil {
				return nil // processes that it left behind are what is kept
			}
		}
		if err == nil && argv != nil {
			var res *api.ExecResult
			if res, err = b.client.Processes.Exec(ctx, id, api.ExecRequest{Argv: argv}); err == nil && res.OK {
				return nil
			}
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// show copies the output of a process.
func (b *builder) show(ctx context.Context, id string, pid int) error {
	_, err := b.client.Processes.Output(ctx, id, pid, api.AttachRequest{}, func(c api.Chunk) error {
		_, err := b.Out.Write(c.Data)
		return err
	})
	return err
}
