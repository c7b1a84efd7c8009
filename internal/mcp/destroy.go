package mcp

import (
	"context"
	"errors"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

type destroyInput struct {
	Names []string `json:"names" jsonschema:"ids or names of sandboxes and snapshots"`
}

type destroyOutput struct {
	Destroyed []string `json:"destroyed" jsonschema:"what is gone"`
	Failed    []string `json:"failed,omitempty" jsonschema:"what is not, and why"`
}

// Text implements output.
func (o destroyOutput) Text() string {
	return lines("destroyed: "+or(strings.Join(o.Destroyed, ", "), "nothing"), strings.Join(o.Failed, "\n"))
}

func (s *server) addDestroy(to *sdk.Server) {
	add(s, to, "destroy", "Destroy sandboxes and snapshots",
		"End sandboxes with all that is in them, and delete snapshots. Use it for the children of a fork that were not promoted, and when a task is done. Children of a destroyed sandbox go on.",
		destroys, destroy)
}

func destroy(ctx context.Context, c *call, in destroyInput) (destroyOutput, error) {
	out := destroyOutput{Destroyed: []string{}}
	var errs []error
	for _, ref := range in.Names {
		err := c.remove(ctx, ref)
		if err != nil {
			errs = append(errs, err)
			out.Failed = append(out.Failed, ref+": "+err.Error())
			continue
		}
		out.Destroyed = append(out.Destroyed, ref)
	}
	if len(out.Destroyed) == 0 {
		return out, errors.Join(errs...)
	}
	return out, nil
}

// remove ends a sandbox, or deletes a snapshot. A name is that of a sandbox if there is one.
func (c *call) remove(ctx context.Context, ref string) error {
	if api.IsID(api.KindSnapshot, ref) {
		return c.daemon.Snapshots.Delete(ctx, ref, api.SnapshotDeletion{})
	}
	err := c.daemon.Sandboxes.Destroy(ctx, ref)
	if api.CodeOf(err) != api.CodeNotFound || api.IsID(api.KindSandbox, ref) {
		return err
	}
	if serr := c.daemon.Snapshots.Delete(ctx, ref, api.SnapshotDeletion{}); api.CodeOf(serr) != api.CodeNotFound {
		return serr
	}
	return err
}
