package guestfs

import (
	"cmp"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/kern"
)

// removeBatch is how many names of a directory are removed at a time.
const removeBatch = 4096

// Change makes a directory, moves, removes or changes modes, and describes the file after
// it. alive is asked now and then whether to go on.
func (fs *Files) Change(req *wire.File, alive func() error) (*api.FileInfo, error) {
	o, err := fs.changeOp(req)
	if err != nil {
		return nil, err
	}
	name := string(req.Path)
	switch req.Verb {
	case wire.FileMkdir:
		err = o.mkdir(req, name)
	case wire.FileMove:
		err = o.move(req, name)
		name = string(req.To)
	case wire.FileRemove:
		if err := o.remove(name, req.IfMatch, req.Recursive, alive); err != nil {
			return nil, err
		}
		return &api.FileInfo{Path: name}, nil
	case wire.FileChmod:
		err = o.chmod(name, *req.Mode, req.Recursive, !req.NoFollow, alive)
	}
	if err != nil {
		return nil, err
	}
	var info *api.FileInfo
	err = o.do(func(root vfs.VirtualDentry) error {
		info, err = o.info(root, name, req.Verb == wire.FileChmod) // the file that has the mode now
		return err
	})
	return info, fileError(name, err)
}

func (o *fileOp) mkdir(req *wire.File, name string) error {
	if req.Parents {
		if err := o.makeParents(name); err != nil {
			return err
		}
	}
	mode := linux.FileMode(0o755)
	if req.Mode != nil {
		mode = linux.FileMode(*req.Mode)
	}
	return fileError(name, o.do(func(root vfs.VirtualDentry) error {
		err := o.makeDir(root, name, mode)
		if req.Parents && linuxerr.Equals(linuxerr.EEXIST, err) {
			if st, serr := o.stat(root, name, true); serr == nil && typeOf(st.Mode) == typeDir {
				return nil
			}
		}
		return err
	}))
}

func (o *fileOp) move(req *wire.File, name string) error {
	to := string(req.To)
	if req.Parents {
		if err := o.makeParents(to); err != nil {
			return err
		}
	}
	var flags uint32
	if req.Keep {
		flags = linux.RENAME_NOREPLACE
	}
	err := o.do(func(root vfs.VirtualDentry) error {
		return o.vfs().RenameAt(o.ctx, o.creds, kern.LinkAt(root, name), kern.LinkAt(root, to), &vfs.RenameOptions{Flags: flags})
	})
	switch {
	case linuxerr.Equals(linuxerr.EXDEV, err):
		return api.Errorf(api.CodeUnsupported, "%q and %q are on different file systems: copy it", name, to)
	case linuxerr.Equals(linuxerr.EEXIST, err), linuxerr.Equals(linuxerr.ENOTEMPTY, err):
		return fileError(to, err)
	}
	return fileError(name, err)
}

// remove removes name, and if it is a directory all below it if that is asked
// for. Files that vanish meanwhile are no error. tags are as for checkMatch.
func (o *fileOp) remove(name string, tags []string, recursive bool, alive func() error) error {
	if err := alive(); err != nil {
		return err
	}
	isDir := false
	err := o.doMatching(tags, func(root vfs.VirtualDentry) error {
		st, err := o.stat(root, name, false)
		matched := checkMatch(name, tags, &st, err)
		if matched != nil && err == nil && typeOf(st.Mode) == typeSymlink { // a reader of the link has the tag of its target
			if to, err := o.stat(root, name, true); err == nil && checkMatch(name, tags, &to, nil) == nil {
				matched = nil
			}
		}
		if err := cmp.Or(matched, err); err != nil {
			return err
		}
		if isDir = typeOf(st.Mode) == typeDir; isDir {
			return o.vfs().RmdirAt(o.ctx, o.creds, kern.LinkAt(root, name))
		}
		return o.vfs().UnlinkAt(o.ctx, o.creds, kern.LinkAt(root, name))
	})
	if !isDir || !recursive || !linuxerr.Equals(linuxerr.ENOTEMPTY, err) {
		return fileError(name, err)
	}
	for {
		names, err := o.names(name, "", true, removeBatch)
		if err != nil {
			return fileError(name, err)
		}
		for _, n := range names {
			child, err := below(name, n)
			if err == nil {
				err = o.remove(child, nil, true, alive)
			}
			if err != nil && api.CodeOf(err) != api.CodeNotFound {
				return err
			}
		}
		if len(names) < removeBatch {
			break
		}
	}
	return fileError(name, o.do(func(root vfs.VirtualDentry) error {
		return o.vfs().RmdirAt(o.ctx, o.creds, kern.LinkAt(root, name))
	}))
}

// chmod changes modes. A symbolic link has none: with follow its target gets the mode.
func (o *fileOp) chmod(name string, mode uint32, recursive, follow bool, alive func() error) error {
	if !follow {
		var info *api.FileInfo
		err := o.do(func(root vfs.VirtualDentry) (err error) {
			info, err = o.info(root, name, false)
			return err
		})
		if err != nil {
			return fileError(name, err)
		}
		if info.Type == typeSymlink {
			return api.Errorf(api.CodeUnsupported, "%q is a symbolic link, which has no mode of its own", name)
		}
	}
	set := func(name string, follow bool) error {
		return fileError(name, o.do(func(root vfs.VirtualDentry) error {
			pop := kern.PathAt(root, name)
			pop.FollowFinalSymlink = follow
			opts := modeStat(mode)
			return o.vfs().SetStatAt(o.ctx, o.creds, pop, &opts)
		}))
	}
	if recursive {
		w := &walk{op: o, alive: alive, visit: func(e *walked) error {
			if e.info.Type == typeSymlink {
				return nil // its mode means nothing
			}
			if err := set(e.info.Path, false); err != nil && api.CodeOf(err) != api.CodeNotFound {
				return err
			}
			return nil
		}}
		if err := w.run(name, ""); err != nil {
			return err
		}
	}
	return set(name, true)
}
