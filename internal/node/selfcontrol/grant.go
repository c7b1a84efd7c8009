package selfcontrol

import (
	"slices"

	"ramet.dev/ramet/api"
)

// Grant is the stored right of a sandbox to control itself. nil is no right. A grant is
// never changed in place, because records share it: each method returns a new one.
type Grant struct {
	// Budget is the id of the budget that the sandbox shares with all descendants of the
	// sandbox that the budget was granted to.
	Budget string `json:"grant"`
	// Made is set when the sandbox's parent made it by a self-request.
	Made bool `json:"made,omitempty"`
	// Snapshots are the ids of the snapshots that the sandbox may return to, oldest first:
	// those that it made by self-requests, or an ancestor before the sandbox was forked
	// from it.
	Snapshots []string `json:"snapshots,omitempty"`
	// Tags are claimed keys of metadata, in records of versions that kept them here.
	Tags []string `json:"tags,omitempty"`
}

// Inherited returns the grant of a child or snapshot of a sandbox with the grant g. made is
// set if the sandbox itself asked for it.
func (g *Grant) Inherited(made bool) *Grant {
	if g == nil {
		return nil
	}
	out := *g
	out.Made = made
	return &out
}

// WithSnapshot returns the grant with one more snapshot that the sandbox may return to.
func (g *Grant) WithSnapshot(id string) *Grant {
	if g == nil {
		return nil
	}
	out := *g
	out.Snapshots = append(slices.Clone(g.Snapshots), id)
	return &out
}

// Migrate moves the claimed keys of a record of an older version to claimed, and returns the grant without them.
func (g *Grant) Migrate(claimed *[]string) *Grant {
	if g == nil || len(g.Tags) == 0 {
		return g
	}
	out := *g
	*claimed, out.Tags = slices.Sorted(slices.Values(g.Tags)), nil
	return &out
}

// Additions returns the change that sets all of metadata.
func Additions(metadata map[string]string) map[string]*string {
	change := map[string]*string{}
	for k, v := range metadata {
		change[k] = &v
	}
	return change
}

// mayChange refuses keys that were set from outside, because their owner relies on them.
func mayChange(labels api.Labels, change map[string]*string) error {
	for k := range change {
		if _, set := labels[k]; set {
			return api.Errorf(api.CodeConflict, "metadata %s was set from outside, and only can be changed there", k)
		}
	}
	return nil
}
