package build

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// DefaultTag is the tag of a template's name without one.
const DefaultTag = "default"

// tagMark stands between the name of a template and a tag, in the name of the snapshot.
const tagMark = "_tag_"

// StateName returns the name of the snapshot that a template is under a tag.
func StateName(template, tag string) string {
	if tag == "" || tag == DefaultTag {
		return template
	}
	return template + tagMark + tag
}

// ParseState returns the template and the tag whose snapshot has a name.
func ParseState(name string) (template, tag string) {
	template, tag, found := strings.Cut(name, tagMark)
	if !found {
		tag = DefaultTag
	}
	return template, tag
}

// maxTags is the most tags of a request.
const maxTags = 16

// ValidTags returns an error unless a template can have tags.
func ValidTags(template string, tags []string) error {
	if len(tags) == 0 || len(tags) > maxTags {
		return api.Invalid("tags", "there are from 1 to %d", maxTags)
	}
	for _, tag := range tags {
		if tag == "" || strings.Contains(tag, "_") || api.ValidName("tags", StateName(template, tag)) != nil {
			return api.Invalid("tags", "%q is no tag of %s: a-z, 0-9, '.' and '-', beginning and ending with a letter or digit, with the name of the template up to 58 characters", tag, template)
		}
	}
	return nil
}

// States returns the snapshots that a template is, under all its tags.
func States(ctx context.Context, svc service.Snapshots, template string) ([]api.Snapshot, error) {
	all, err := svc.Snapshots(ctx)
	return slices.DeleteFunc(all, func(sn api.Snapshot) bool {
		of, _ := ParseState(sn.Name)
		return sn.Name == "" || of != template
	}), err
}

// noBuild is the id of the build of a snapshot that no build made.
const noBuild = "00000000-0000-0000-0000-000000000000"

// Of returns the id of the build that made a snapshot.
func Of(sn *api.Snapshot) string {
	if id := sn.Labels()[MetaBuild]; id != "" {
		return id
	}
	return noBuild
}

// Keep keeps the state of a sandbox as the snapshot of a name, in place of an older one.
func Keep(ctx context.Context, svc Service, sandbox, name string) error {
	if old, err := svc.GetSnapshot(ctx, name); err == nil {
		if err := svc.DeleteSnapshot(ctx, old.ID, api.SnapshotDeletion{Flatten: true}); err != nil {
			return fmt.Errorf("replace the template: %w", err)
		}
	}
	_, err := svc.Snapshot(ctx, sandbox, api.SnapshotRequest{Name: name})
	return err
}
