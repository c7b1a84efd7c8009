package guestfs

import (
	"strings"
	"unicode/utf8"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/kern"
)

// maxToldXattrs bounds the attributes that a description has, in bytes: with the path of the file, and all that JSON may
// make of both, it must fit a packet.
const maxToldXattrs = 4 << 10

// tellXattrs adds the extended attributes that the request asks for to the description of a file. root is that of a
// step. What cannot be read is not told, as in an archive.
func (o *fileOp) tellXattrs(root vfs.VirtualDentry, info *api.FileInfo) {
	if o.xattrs == "" || info.Type != typeFile && info.Type != typeDir {
		return
	}
	names, err := o.vfs().ListXattrAt(o.ctx, o.creds, kern.PathAt(root, info.Path), maxXattr)
	if err != nil {
		return
	}
	room := maxToldXattrs
	for _, name := range names {
		if !strings.HasPrefix(name, o.xattrs) {
			continue
		}
		value, err := o.vfs().GetXattrAt(o.ctx, o.creds, kern.PathAt(root, info.Path), &vfs.GetXattrOptions{Name: name, Size: maxXattr})
		if err != nil || !utf8.ValidString(name) || !utf8.ValidString(value) {
			continue
		}
		if room -= len(name) + len(value); room < 0 {
			return
		}
		if info.Xattrs == nil {
			info.Xattrs = map[string]string{}
		}
		info.Xattrs[name] = value
	}
}

// setXattrs gives the file the extended attributes of the request, in place of those whose names begin as it says.
func (w *FileWriter) setXattrs() error {
	if w.req.Xattrs == "" {
		return nil
	}
	file, ctx := w.held.file, w.op.ctx
	names, err := file.ListXattr(ctx, maxXattr)
	if linuxerr.Equals(linuxerr.EOPNOTSUPP, err) && len(w.req.SetXattrs) == 0 {
		return nil // it can have none
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, stays := w.req.SetXattrs[name]; stays || !strings.HasPrefix(name, w.req.Xattrs) {
			continue
		}
		if err := file.RemoveXattr(ctx, name); err != nil && !linuxerr.Equals(linuxerr.ENODATA, err) {
			return err
		}
	}
	for name, value := range w.req.SetXattrs {
		if err := file.SetXattr(ctx, &vfs.SetXattrOptions{Name: name, Value: value}); err != nil {
			return err
		}
	}
	return nil
}
