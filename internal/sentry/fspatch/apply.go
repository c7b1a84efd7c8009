package fspatch

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// apply makes all changes, or none and returns an error. The guest stands still.
// Files that are removed are moved to a directory of their own first, since from there they
// can be moved back.
func (p *patching) apply() error {
	next := 0
	for i := range p.ops {
		op := &p.ops[i]
		err := p.checkMount(op)
		if err == nil {
			err = p.do(op, &next)
		}
		if err != nil {
			err = fmt.Errorf("%s %s: %w", op.Kind, op.Path, err)
			return errors.Join(err, p.takeBack())
		}
	}
	p.freeReserve()
	p.emptyTrash()
	p.announce()
	return nil
}

// announce tells those who watch a file that was made, or its directory, that it was written, as of any file that a
// program has written. That its name is there they know.
func (p *patching) announce() {
	for i := range p.ops {
		op := &p.ops[i]
		if op.Kind != wire.PatchMake || op.Mode&linux.S_IFMT != linux.S_IFREG {
			continue
		}
		vd, err := p.tree.k.VFS().GetDentryAt(p.ctx, p.creds, p.at(string(op.Path)), &vfs.GetDentryOptions{})
		if err != nil {
			continue // a later change took it away
		}
		for _, event := range []uint32{linux.IN_MODIFY, linux.IN_CLOSE_WRITE} {
			vd.Dentry().InotifyWithParent(p.ctx, event, 0, vfs.PathEvent)
		}
		vd.DecRef(p.ctx)
	}
}

// takeBack undoes the changes that were made.
func (p *patching) takeBack() error {
	p.freeReserve()
	for _, undo := range slices.Backward(p.undo) {
		if err := undo(); err != nil {
			return api.Errorf(api.CodeInternal, "changes cannot be taken back; what is missing is in %s: %w", p.trash, err)
		}
	}
	return nil
}

func (p *patching) freeReserve() {
	p.reserve.DecRef(p.ctx)
	p.reserve = nil
}

// checkMount refuses to follow a path to another file system. Directories on it
// were compared with the plan's, so there are no links among them.
func (p *patching) checkMount(op *wire.PatchOp) error {
	dir := path.Dir(string(op.Path))
	if op.Kind == wire.PatchAttrs {
		dir = string(op.Path)
	}
	if p.checked[dir] {
		return nil
	}
	vd, err := p.tree.k.VFS().GetDentryAt(p.ctx, p.creds, p.at(dir), &vfs.GetDentryOptions{})
	if err != nil {
		return err
	}
	defer vd.DecRef(p.ctx)
	if vd.Mount() != p.root.Mount() {
		return linuxerr.EBUSY
	}
	p.checked[dir] = true
	return nil
}

// do makes a change. next is the index of the next staged file.
func (p *patching) do(op *wire.PatchOp, next *int) error {
	v, at := p.tree.k.VFS(), string(op.Path)
	made := func(isDir bool) {
		p.undo = append(p.undo, func() error {
			if isDir {
				return v.RmdirAt(p.ctx, p.creds, p.at(at))
			}
			return v.UnlinkAt(p.ctx, p.creds, p.at(at))
		})
	}
	switch op.Kind {
	case wire.PatchRemove:
		return p.remove(at)
	case wire.PatchTake:
		if err := p.makeTrash(); err != nil {
			return err
		}
		p.taken[at] = path.Join(p.trash, "taken-"+strconv.Itoa(len(p.taken)))
		return p.move(at, p.taken[at])
	case wire.PatchPlace:
		if p.taken[string(op.From)] == "" {
			return linuxerr.EINVAL
		}
		return p.move(p.taken[string(op.From)], at)
	case wire.PatchLink:
		err := v.LinkAt(p.ctx, p.creds, p.at(string(op.From)), p.at(at))
		if err == nil {
			made(false)
		}
		return err
	case wire.PatchAttrs:
		return p.setAttrs(op)
	case wire.PatchMake:
	default:
		return linuxerr.EINVAL
	}
	var err error
	kind := op.Mode & linux.S_IFMT
	switch kind {
	case linux.S_IFREG:
		f := p.staged[*next]
		*next++
		vd := f.VirtualDentry()
		err = v.LinkAt(p.ctx, p.creds, &vfs.PathOperation{Root: p.root, Start: vd, Path: fspath.Parse("")}, p.at(at))
		if err == nil {
			made(false)
		}
		return err // it has its attributes
	case linux.S_IFDIR:
		err = v.MkdirAt(p.ctx, p.creds, p.at(at), &vfs.MkdirOptions{Mode: 0o700})
	case linux.S_IFLNK:
		err = v.SymlinkAt(p.ctx, p.creds, p.at(at), string(op.Target))
	default:
		err = v.MknodAt(p.ctx, p.creds, p.at(at), &vfs.MknodOptions{Mode: linux.FileMode(op.Mode), DevMajor: op.Major, DevMinor: op.Minor})
	}
	if err != nil {
		return err
	}
	made(kind == linux.S_IFDIR)
	return p.writeAttrs(at, op)
}

// remove moves a file or an empty directory to the trash. Processes that have a file
// open see it deleted at its own path, as after unlink(2); for that it gets another
// name, which a directory cannot have.
func (p *patching) remove(at string) error {
	v := p.tree.k.VFS()
	st, err := v.StatAt(p.ctx, p.creds, p.at(at), &vfs.StatOptions{Mask: linux.STATX_TYPE})
	if err != nil {
		return err
	}
	isDir := st.Mode&linux.S_IFMT == linux.S_IFDIR
	if isDir {
		names, err := p.tree.k.ListDir(p.ctx, at)
		if err != nil {
			return err
		}
		if len(names) > 0 {
			return linuxerr.ENOTEMPTY
		}
	}
	if err := p.makeTrash(); err != nil {
		return err
	}
	to := path.Join(p.trash, strconv.Itoa(p.removed))
	if isDir {
		err = v.RenameAt(p.ctx, p.creds, p.at(at), p.at(to), &vfs.RenameOptions{})
	} else if err = v.LinkAt(p.ctx, p.creds, p.at(at), p.at(to)); err == nil {
		if err = v.UnlinkAt(p.ctx, p.creds, p.at(at)); err != nil {
			err = errors.Join(err, v.UnlinkAt(p.ctx, p.creds, p.at(to)))
		}
	}
	if err != nil {
		return err
	}
	p.removed++
	p.undo = append(p.undo, func() error {
		p.removed--
		return v.RenameAt(p.ctx, p.creds, p.at(to), p.at(at), &vfs.RenameOptions{})
	})
	return nil
}

// move renames anything.
func (p *patching) move(from, to string) error {
	v := p.tree.k.VFS()
	err := v.RenameAt(p.ctx, p.creds, p.at(from), p.at(to), &vfs.RenameOptions{Flags: linux.RENAME_NOREPLACE})
	if err == nil {
		p.undo = append(p.undo, func() error { return v.RenameAt(p.ctx, p.creds, p.at(to), p.at(from), &vfs.RenameOptions{}) })
	}
	return err
}

// makeTrash makes the directory, once.
func (p *patching) makeTrash() error {
	if p.trash != "" {
		return nil
	}
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	trash := "/.ramet-merge-" + hex.EncodeToString(b[:])
	v := p.tree.k.VFS()
	if err := v.MkdirAt(p.ctx, p.creds, p.at(trash), &vfs.MkdirOptions{Mode: 0o700}); err != nil {
		return err
	}
	p.trash = trash
	p.undo = append(p.undo, func() error { return v.RmdirAt(p.ctx, p.creds, p.at(trash)) })
	return nil
}

// emptyTrash deletes the files that were removed. There is room for that: the tree
// keeps some for deleting.
func (p *patching) emptyTrash() {
	if p.trash == "" {
		return
	}
	v := p.tree.k.VFS()
	var errs []error
	for i := range p.removed {
		at := path.Join(p.trash, strconv.Itoa(i))
		err := v.UnlinkAt(p.ctx, p.creds, p.at(at))
		if linuxerr.Equals(linuxerr.EISDIR, err) {
			err = v.RmdirAt(p.ctx, p.creds, p.at(at))
		}
		errs = append(errs, err)
	}
	errs = append(errs, v.RmdirAt(p.ctx, p.creds, p.at(p.trash)))
	if err := errors.Join(errs...); err != nil {
		log.Warningf("Merge: %s stays: %v", p.trash, err)
	}
}

// setAttrs changes attributes of a file that exists.
func (p *patching) setAttrs(op *wire.PatchOp) error {
	v, at := p.tree.k.VFS(), string(op.Path)
	st, err := v.StatAt(p.ctx, p.creds, p.at(at), &vfs.StatOptions{Mask: linux.STATX_BASIC_STATS})
	if err != nil {
		return err
	}
	was := wire.PatchOp{Mode: uint32(st.Mode), UID: st.UID, GID: st.GID}
	for _, x := range op.Xattrs {
		x.Value = nil
		if value, err := v.GetXattrAt(p.ctx, p.creds, p.at(at), &vfs.GetXattrOptions{Name: string(x.Name)}); err == nil {
			b := []byte(value)
			x.Value = &b
		}
		was.Xattrs = append(was.Xattrs, x)
	}
	p.undo = append(p.undo, func() error { return p.writeAttrs(at, &was) })
	return p.writeAttrs(at, op)
}

// writeAttrs sets attributes, whatever they were.
func (p *patching) writeAttrs(at string, op *wire.PatchOp) error {
	v := p.tree.k.VFS()
	if err := v.SetStatAt(p.ctx, p.creds, p.at(at), &vfs.SetStatOptions{Stat: ownerStat(op)}); err != nil {
		return err
	}
	if op.Mode&linux.S_IFMT != linux.S_IFLNK { // which has no mode of its own
		if err := v.SetStatAt(p.ctx, p.creds, p.at(at), &vfs.SetStatOptions{Stat: permStat(op)}); err != nil {
			return err
		}
	}
	for _, x := range op.Xattrs {
		var err error
		if x.Value != nil {
			err = v.SetXattrAt(p.ctx, p.creds, p.at(at), &vfs.SetXattrOptions{Name: string(x.Name), Value: string(*x.Value)})
		} else if err = v.RemoveXattrAt(p.ctx, p.creds, p.at(at), string(x.Name)); linuxerr.Equals(linuxerr.ENODATA, err) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
