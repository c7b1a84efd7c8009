package mcp

import (
	"context"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

type snapshotInput struct {
	Action   string   `json:"action" enum:"create,rollback,restore,push,pull" jsonschema:"create: keep the state of sandbox. rollback: give sandbox the state of snapshot back; what came after is lost. restore: make new sandboxes from snapshot. push: send snapshot to a registry, with all memory of its sandbox. pull: get a snapshot from a registry"`
	Sandbox  string   `json:"sandbox,omitempty" jsonschema:"create and rollback: id or name of the sandbox"`
	Snapshot string   `json:"snapshot,omitempty" jsonschema:"rollback, restore and push: id or name of the snapshot"`
	Name     string   `json:"name,omitempty" jsonschema:"create and pull: name to give the snapshot"`
	Ref      string   `json:"ref,omitempty" jsonschema:"push and pull: reference in the registry, such as registry.example.org/team/warm:v1"`
	Names    []string `json:"names,omitempty" jsonschema:"restore: names of the new sandboxes, one for each"`
	Count    int      `json:"count,omitempty" minimum:"1" maximum:"100" jsonschema:"restore: how many sandboxes; 1 if absent"`
}

type snapshotOutput struct {
	Snapshot  string  `json:"snapshot,omitempty" jsonschema:"id of the snapshot"`
	Sandbox   string  `json:"sandbox,omitempty" jsonschema:"sandbox that it was taken of, or that has its state again"`
	Sandboxes []child `json:"sandboxes,omitempty" jsonschema:"new sandboxes"`
	text      string
}

// Text implements output.
func (o snapshotOutput) Text() string { return o.text }

func (s *server) addSnapshot(to *sdk.Server) {
	add(s, to, "snapshot", "Snapshot, roll back, restore, push or pull",
		"Keep the whole state of a running sandbox under a name, on disk; give a sandbox such a state back; make new sandboxes from it, also much later; or send it to a registry and get one from there. Take one before a command that may destroy something. For trying several ways at once ramet_fork is faster.",
		destroys, snapshot)
}

func snapshot(ctx context.Context, c *call, in snapshotInput) (out snapshotOutput, err error) {
	need := map[string]string{"create": in.Sandbox, "rollback": in.Sandbox, "restore": in.Snapshot, "push": in.Snapshot, "pull": in.Ref}
	if need[in.Action] == "" || in.Action == "rollback" && in.Snapshot == "" || in.Action == "push" && in.Ref == "" {
		return out, api.Invalid("action", "create needs sandbox, rollback sandbox and snapshot, restore snapshot, push snapshot and ref, pull ref")
	}
	switch in.Action {
	case "create":
		snap, err := c.daemon.Snapshots.Create(ctx, in.Sandbox, api.SnapshotRequest{Name: in.Name})
		if err != nil {
			return out, err
		}
		out.Snapshot, out.Sandbox = snap.ID, snap.Sandbox
		out.text = fmt.Sprintf("snapshot %s%s of %s", snap.ID, named(snap.Name), snap.Sandbox)
	case "rollback":
		sb, err := c.daemon.Sandboxes.Rollback(ctx, in.Sandbox, in.Snapshot)
		if err != nil {
			return out, err
		}
		out.Snapshot, out.Sandbox = in.Snapshot, sb.ID
		out.text = fmt.Sprintf("sandbox %s%s has the state of snapshot %s again", sb.ID, named(sb.Name), in.Snapshot)
	case "push":
		res, err := c.daemon.Snapshots.Push(ctx, in.Snapshot, api.PushRequest{Ref: in.Ref}, func(api.Progress) {})
		if err != nil {
			return out, err
		}
		out.Snapshot, out.text = res.Snapshot, fmt.Sprintf("snapshot %s is %s@%s", res.Snapshot, res.Ref, res.Digest)
	case "pull":
		snap, err := c.daemon.Snapshots.Pull(ctx, api.PullRequest{Ref: in.Ref, Name: in.Name}, func(api.Progress) {})
		if err != nil {
			return out, err
		}
		out.Snapshot, out.text = snap.ID, fmt.Sprintf("snapshot %s%s of %s", snap.ID, named(snap.Name), in.Ref)
	case "restore":
		res, err := c.daemon.Snapshots.Restore(ctx, in.Snapshot, api.RestoreRequest{
			Count: in.Count, Names: in.Names, Metadata: map[string]string{"client": label}, Lifecycle: lifetime(nil, defaultTTL),
		})
		if err != nil {
			return out, err
		}
		made, err := forked(res)
		if err != nil {
			return out, err
		}
		out.Snapshot, out.Sandboxes, out.text = in.Snapshot, made.Children, made.Text()
	}
	return out, nil
}
