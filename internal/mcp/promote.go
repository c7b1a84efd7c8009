package mcp

import (
	"context"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"ramet.dev/ramet/api"
)

type promoteInput struct {
	Action   string   `json:"action,omitempty" enum:"promote,merge" jsonschema:"promote (if absent): the parent of the child in from takes over all of its state, processes and memory included, and the child is gone. merge: the files that those in from have changed since they parted from sandbox are changed in it, too"`
	From     []string `json:"from" jsonschema:"the child to promote; or the sandboxes and snapshots to merge, one after the other"`
	Sandbox  string   `json:"sandbox,omitempty" jsonschema:"merge: the sandbox whose files change"`
	Paths    []string `json:"paths,omitempty" jsonschema:"merge: only these paths and the files below them"`
	Strategy string   `json:"strategy,omitempty" enum:"leave,ours,theirs,fail" jsonschema:"merge: paths with conflicting changes stay as they are (leave, if absent), are those of sandbox (ours) or of from (theirs), or nothing is merged at all (fail)"`
	DryRun   bool     `json:"dry_run,omitempty" jsonschema:"merge: only say what would change"`
}

type promoteOutput struct {
	Sandbox   string   `json:"sandbox" jsonschema:"the sandbox that has changed"`
	Changes   []change `json:"changes,omitempty" jsonschema:"files that the merge changed"`
	Conflicts []change `json:"conflicts,omitempty" jsonschema:"files with conflicting changes"`
	Truncated bool     `json:"truncated,omitempty" jsonschema:"there are more"`
	text      string
}

// Text implements output.
func (o promoteOutput) Text() string { return o.text }

func (s *server) addPromote(to *sdk.Server) {
	add(s, to, "promote", "Promote a child, or merge its files",
		"Keep what a child of a fork has achieved. promote gives all of its state to its parent, which keeps its id. merge brings only changed files to a sandbox, three-way and of several children at once, and reports conflicts. Use ramet_inspect before, and ramet_destroy for the other children afterwards.",
		destroys, promote)
}

func promote(ctx context.Context, c *call, in promoteInput) (out promoteOutput, err error) {
	if in.Action == "merge" {
		return merge(ctx, c, in)
	}
	if len(in.From) != 1 {
		return out, api.Invalid("from", "exactly one child is promoted, not %d: merge takes files of several", len(in.From))
	}
	sb, err := c.daemon.Sandboxes.Promote(ctx, in.From[0])
	if err != nil {
		return out, err
	}
	if in.Sandbox != "" && in.Sandbox != sb.ID && in.Sandbox != sb.Name {
		out.text = fmt.Sprintf("the parent of %s is not %s. ", in.From[0], in.Sandbox)
	}
	out.Sandbox = sb.ID
	out.text += fmt.Sprintf("sandbox %s%s has the state of %s, which is gone", sb.ID, named(sb.Name), in.From[0])
	return out, nil
}

func merge(ctx context.Context, c *call, in promoteInput) (out promoteOutput, err error) {
	if in.Sandbox == "" {
		return out, api.Invalid("sandbox", "merge needs the sandbox whose files change")
	}
	res, err := c.daemon.Sandboxes.Merge(ctx, in.Sandbox, api.MergeRequest{
		From: in.From, Paths: in.Paths, DryRun: in.DryRun, Strategy: api.MergeStrategy(in.Strategy),
	})
	if err != nil {
		return out, err
	}
	out.Sandbox = res.Into
	done := "changed"
	if in.DryRun {
		done = "would change"
	}
	text := []string{fmt.Sprintf("%d files %s, %d conflicts", len(res.Applied), done, len(res.Conflicts))}
	for _, ch := range res.Applied {
		out.Changes = append(out.Changes, change{What: "file", Kind: string(ch.Kind), Name: ch.Path, Was: ch.OldPath})
	}
	for _, cf := range res.Conflicts {
		resolved := "left as it was"
		if cf.Resolved != "" {
			resolved = "taken from " + string(cf.Resolved)
		}
		out.Conflicts = append(out.Conflicts, change{What: "file", Kind: "conflict", Name: cf.Path, Is: cf.Reason + ", " + resolved})
	}
	out.Changes, out.Conflicts, out.Truncated = out.Changes[:min(len(out.Changes), maxShown)], out.Conflicts[:min(len(out.Conflicts), maxShown)], max(len(out.Changes), len(out.Conflicts)) > maxShown
	for _, ch := range append(out.Conflicts[:len(out.Conflicts):len(out.Conflicts)], out.Changes...) {
		text = append(text, ch.Text())
	}
	if out.Truncated {
		text = append(text, "… and more")
	}
	out.text = lines(text...)
	return out, nil
}
