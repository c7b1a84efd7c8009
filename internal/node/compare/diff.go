package compare

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/treediff"
)

// Diff compares the files of two sandboxes or snapshots of one tree, or of one
// image. It takes time in proportion to what they changed since they parted;
// sandboxes go on meanwhile.
func (c *Comparer) Diff(ctx context.Context, fromRef, toRef string, req api.DiffRequest) (_ *api.Diff, err error) {
	ctx, ended := c.cfg.Observe(ctx, "diff")
	defer ended(&err)
	filter, err := newFilter(req.Paths)
	if err != nil {
		return nil, err
	}
	turn, err := c.cfg.Turn(ctx)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	defer turn()
	from, err := c.cfg.View(ctx, fromRef)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	defer from.Close()
	to, err := c.cfg.View(ctx, toRef)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	defer to.Close()
	if err := inEither(filter.Only, from, to); err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	d := &api.Diff{From: from.ID, To: to.ID, Base: fsview.CommonAncestor(from.Lineage, to.Lineage)}
	changes, err := changesOf(ctx, from, to, filter)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	d.Changes = make([]api.Change, len(changes))
	for i := range changes {
		d.Changes[i] = describe(&changes[i])
	}
	if req.Hunks || req.Stat {
		h := hunker{old: readerOf(from.Files), new: readerOf(to.Files), hunks: req.Hunks, left: maxHunks, unread: maxRead}
		if err := h.addTo(ctx, d.Changes, changes); err != nil {
			return nil, fmt.Errorf("diff: %w", filesError(err))
		}
	}
	if req.Processes {
		if d.Processes, err = c.processes(ctx, fromRef, toRef); err != nil {
			return nil, fmt.Errorf("diff: %w", err)
		}
	}
	if req.Variables {
		if d.Variables, err = c.variables(ctx, from.ID, to.ID); err != nil {
			return nil, fmt.Errorf("diff: %w", err)
		}
	}
	noteDiff(ctx, d)
	return d, nil
}

// changesOf compares the files of two views.
func changesOf(ctx context.Context, from, to *fsview.View, filter treediff.Filter) ([]treediff.Change, error) {
	if from.Image != to.Image {
		return nil, api.Errorf(api.CodeConflict, "%s and %s are of different images", from.ID, to.ID)
	}
	changes, err := treediff.Changes(ctx, from.Files, to.Files, filter)
	return changes, filesError(err)
}

// filesError gives errors of reading files a code.
func filesError(err error) error {
	switch {
	case cowfs.IsCorrupt(err):
		return api.Errorf(api.CodeCorrupt, "%w", err)
	case errors.Is(err, cowfs.ErrLimit):
		return api.Errorf(api.CodeLimit, "%w: name paths to look at less", err)
	}
	return err
}

// newFilter selects what is at and below paths, or all but fsview.SkippedPaths.
func newFilter(paths []string) (treediff.Filter, error) {
	if len(paths) == 0 {
		return treediff.Filter{Except: fsview.SkippedPaths()}, nil
	}
	if err := api.ValidTreePaths("paths", paths); err != nil {
		return treediff.Filter{}, err
	}
	return treediff.Filter{Only: paths}, nil
}

// inEither refuses paths at which neither of the two has anything.
func inEither(paths []string, from, to *fsview.View) error {
	for _, p := range paths {
		found := false
		for _, v := range []*fsview.View{from, to} {
			_, err := v.Files.Find(p)
			if err != nil && !errors.Is(err, cowfs.ErrNotExist) {
				return filesError(err)
			}
			found = found || err == nil
		}
		if !found {
			return api.Errorf(api.CodeNotFound, "%q is in neither of the two, where links are not followed", p)
		}
	}
	return nil
}

var changeKinds = [...]api.ChangeKind{
	treediff.Added: api.Added, treediff.Deleted: api.Deleted, treediff.Modified: api.Modified, treediff.Renamed: api.Renamed,
}

// describe returns a change as users see it.
func describe(c *treediff.Change) api.Change {
	now, old := &c.New.Attr, &c.Old.Attr
	if c.Kind == treediff.Deleted {
		now = old
	}
	out := api.Change{
		Path: c.Path, OldPath: c.From, Kind: changeKinds[c.Kind], Type: typeOf(now), Size: sizeOf(now), Mode: modeOf(now), Owner: ownerOf(now),
		Content: c.Differs&(treediff.DiffersData|treediff.DiffersTarget|treediff.DiffersDevice) != 0, Xattrs: c.Xattrs,
	}
	if c.Kind == treediff.Added || c.Kind == treediff.Deleted {
		return out
	}
	out.OldSize = sizeOf(old)
	if c.Differs&treediff.DiffersType != 0 {
		out.OldType = typeOf(old)
	}
	if c.Differs&treediff.DiffersMode != 0 {
		out.OldMode = modeOf(old)
	}
	if c.Differs&treediff.DiffersOwner != 0 {
		out.OldOwner = ownerOf(old)
	}
	return out
}

func isFile(a *cowfs.Attr) bool { return a.Mode&unix.S_IFMT == unix.S_IFREG }

func typeOf(a *cowfs.Attr) string {
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFREG:
		return "file"
	}
	return "device"
}

// sizeOf returns the size of what a file contains. How large a directory is says
// nothing.
func sizeOf(a *cowfs.Attr) int64 {
	if a.IsDir() {
		return 0
	}
	return int64(a.Size)
}

func modeOf(a *cowfs.Attr) string { return fmt.Sprintf("%04o", a.Mode&0o7777) }

func ownerOf(a *cowfs.Attr) string { return fmt.Sprintf("%d:%d", a.UID, a.GID) }
