package compare

import (
	"bytes"
	"context"
	"encoding/base64"
	"maps"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/merge"
)

const (
	// maxDigest is the largest file of which a digest is given, in bytes, and
	// maxDigests bounds what is read for them in one merge.
	maxDigest  = 64 << 20
	maxDigests = 1 << 30
)

// describeApplied returns a change as users see it.
func describeApplied(a *merge.Applied) api.MergeChange {
	now, kind := a.New, api.Modified
	switch {
	case a.Old == nil:
		kind = api.Added
	case a.New == nil:
		now, kind = a.Old, api.Deleted
	case a.OldPath != "":
		kind = api.Renamed
	}
	attr := attrOf(now)
	out := api.MergeChange{
		Path: a.Path, OldPath: a.OldPath, Kind: kind, From: a.From, Merged: a.Merged, Type: typeOf(attr), Size: now.Size, Mode: modeOf(attr), Owner: ownerOf(attr),
	}
	if kind == api.Modified {
		out.OldSize = a.Old.Size
		if t := typeOf(attrOf(a.Old)); t != out.Type {
			out.OldType = t
		}
	}
	return out
}

func attrOf(f *merge.File) *cowfs.Attr {
	return &cowfs.Attr{Mode: f.Mode, UID: f.UID, GID: f.GID}
}

// describeConflicts returns conflicts as users see them.
func describeConflicts(ctx context.Context, all []merge.Conflict, s api.MergeStrategy) ([]api.MergeConflict, error) {
	out := make([]api.MergeConflict, len(all))
	hunks, digests := maxHunks, int64(maxDigests)
	for i := range all {
		c := &all[i]
		out[i] = api.MergeConflict{Path: c.Path, From: c.From, OursFrom: c.OursFrom, Reason: string(c.Reason), NoHunks: api.NoHunks(c.NoHunks)}
		if c.Resolved {
			out[i].Resolved = s
		}
		withXattrs := !sameXattrs(c.Base, c.Ours) || !sameXattrs(c.Ours, c.Theirs)
		for _, v := range []struct {
			file *merge.File
			to   **api.MergeVersion
		}{{c.Base, &out[i].Base}, {c.Ours, &out[i].Ours}, {c.Theirs, &out[i].Theirs}} {
			if v.file == nil {
				continue
			}
			version, err := describeVersion(ctx, v.file, withXattrs, &digests)
			if err != nil {
				return nil, err
			}
			*v.to = version
		}
		for j := range c.Hunks {
			h := hunkOf(&c.Hunks[j])
			if hunks -= len(h.Base.Text) + len(h.Ours.Text) + len(h.Theirs.Text); hunks < 0 {
				out[i].Hunks, out[i].NoHunks = nil, api.NoHunksLimit
				break
			}
			out[i].Hunks = append(out[i].Hunks, h)
		}
	}
	return out, nil
}

func sameXattrs(a, b *merge.File) bool { return a == nil || b == nil || maps.Equal(a.Xattrs, b.Xattrs) }

func hunkOf(h *merge.Hunk) api.MergeHunk {
	lines := func(l merge.Lines) api.MergeLines { return api.MergeLines{Start: l.At + 1, Text: l.Text} }
	return api.MergeHunk{Base: lines(h.Base), Ours: lines(h.Ours), Theirs: lines(h.Theirs)}
}

// describeVersion returns what one side has. left is how many bytes may still be
// read for digests.
func describeVersion(ctx context.Context, f *merge.File, withXattrs bool, left *int64) (*api.MergeVersion, error) {
	attr := attrOf(f)
	v := &api.MergeVersion{Type: typeOf(attr), Size: f.Size, Mode: modeOf(attr), Owner: ownerOf(attr), Target: f.Target}
	if withXattrs && len(f.Xattrs) > 0 {
		v.Xattrs = map[string]string{}
		for name, value := range f.Xattrs {
			v.Xattrs[name] = base64.StdEncoding.EncodeToString([]byte(value))
		}
	}
	var err error
	switch c := f.Content.(type) {
	case *mergeContent:
		v.SHA256, err = c.digest(ctx, min(maxDigest, *left))
	case merge.Text:
		v.SHA256, err = digestOf(bytes.NewReader(c))
	}
	if v.SHA256 != "" {
		*left -= f.Size
	}
	return v, err
}
