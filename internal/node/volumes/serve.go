package volumes

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/storage/volume"
)

// retryAfter is the time after which a call to a sentry that broke off is made again.
const retryAfter = time.Second

// Serve does the operations of the sandbox in s on the volumes that it has, until s ends or ctx
// does. It returns at once, and does nothing if s is served already.
func (v *Volumes) Serve(ctx context.Context, s *launch.Sentry, mounts []api.VolumeMount) {
	if len(mounts) == 0 {
		return
	}
	v.mu.Lock()
	running := v.served[s]
	v.served[s] = true
	v.mu.Unlock()
	if running {
		return
	}
	may := map[string]bool{} // write, by volume
	for _, m := range mounts {
		may[m.Volume] = may[m.Volume] || !m.ReadOnly
	}
	v.loops.Go(func() {
		defer func() {
			v.mu.Lock()
			defer v.mu.Unlock()
			delete(v.served, s)
		}()
		for {
			err := s.Volumes(ctx, func(call *wire.VolumeCall) (*wire.VolumeAnswer, *os.File) { return v.answer(ctx, s, may, call) })
			select {
			case <-s.Done():
				v.forgetAll(s)
				return
			case <-ctx.Done():
				return
			case <-time.After(retryAfter):
				v.cfg.Log.Warn("serve the volumes of a sandbox", "sentry", s.Key(), "error", err)
			}
		}
	})
}

// answer does one operation. The guest chose what it is: a defect that it finds must not end the
// daemon.
func (v *Volumes) answer(ctx context.Context, s *launch.Sentry, may map[string]bool, call *wire.VolumeCall) (a *wire.VolumeAnswer, f *os.File) {
	defer func() {
		if p := recover(); p != nil {
			v.cfg.Log.Error("an operation on a volume panicked", "sentry", s.Key(), "panic", p, "stack", string(debug.Stack()))
			a, f = &wire.VolumeAnswer{Errno: uint32(unix.EIO)}, nil
		}
	}()
	writable, has := may[call.Volume]
	if !has {
		return &wire.VolumeAnswer{Errno: uint32(unix.EACCES)}, nil
	}
	v.mu.Lock()
	e := v.all[call.Volume]
	var files *volume.Volume
	var err error
	if e == nil {
		err = unix.ESTALE
	} else {
		files, err = v.open(e)
	}
	v.mu.Unlock()
	a = &wire.VolumeAnswer{}
	if err == nil {
		o := operation{volumes: v, sentry: s, files: files, writable: writable, call: call, answer: a}
		err = o.do(ctx)
		f = o.file
	}
	if err != nil {
		errno := volume.Errno(err)
		if errno == unix.EIO {
			v.cfg.Log.Warn("an operation on a volume failed", "volume", call.Volume, "op", call.Op, "error", err)
		}
		return &wire.VolumeAnswer{Errno: uint32(errno)}, nil
	}
	return a, f
}

// operation is a call of a sentry that is being done.
type operation struct {
	volumes  *Volumes
	sentry   *launch.Sentry
	files    *volume.Volume
	writable bool
	call     *wire.VolumeCall
	answer   *wire.VolumeAnswer
	file     *os.File
}

func (o *operation) do(ctx context.Context) error {
	c, v := o.call, o.files
	switch c.Op {
	case wire.VolumeLookup:
		return o.attr(v.Lookup(ctx, c.Ino, c.Name))
	case wire.VolumeStat:
		return o.attr(v.Stat(ctx, c.Ino))
	case wire.VolumeList:
		entries, err := v.List(ctx, c.Ino, c.Name, wire.MaxVolumeEntries)
		for _, e := range entries {
			o.answer.Entries = append(o.answer.Entries, wire.VolumeEntry(e))
		}
		return err
	case wire.VolumeReadlink:
		return o.value(v.Readlink(ctx, c.Ino))
	case wire.VolumeOpen:
		return o.open(ctx)
	case wire.VolumeGetX:
		return o.value(v.Xattr(ctx, c.Ino, c.Name))
	case wire.VolumeListX:
		names, err := v.Xattrs(ctx, c.Ino)
		o.answer.Names = names
		return err
	case wire.VolumeUsage:
		used, limit, nodes, err := v.Usage(ctx)
		o.answer.Usage = &wire.VolumeSpace{Used: used, Limit: limit, Nodes: nodes}
		return err
	}
	if !o.writable {
		return unix.EROFS
	}
	return o.change(ctx)
}

// change does an operation that changes the volume.
func (o *operation) change(ctx context.Context) error {
	c, v := o.call, o.files
	switch c.Op {
	case wire.VolumeSetAttr:
		if c.Set == nil {
			return unix.EINVAL
		}
		return o.attr(v.SetAttr(ctx, c.Ino, volume.Changes(*c.Set)))
	case wire.VolumeMake:
		if c.Node == nil {
			return unix.EINVAL
		}
		return o.attr(v.Make(ctx, c.Ino, c.Name, volume.Node(*c.Node)))
	case wire.VolumeLink:
		return o.attr(v.Link(ctx, c.Ino, c.To, c.NewName))
	case wire.VolumeUnlink, wire.VolumeRmdir:
		held, err := v.Remove(ctx, c.Ino, c.Name, volume.Removal{Dir: c.Op == wire.VolumeRmdir, Hold: c.Hold})
		o.hold(held)
		return err
	case wire.VolumeRename:
		held, err := v.Rename(ctx, c.Ino, c.Name, c.To, c.NewName, c.Keep, c.Hold)
		o.hold(held)
		return err
	case wire.VolumeForget:
		return o.volumes.forget(ctx, o.sentry, heldFile{c.Volume, c.Ino}, v)
	case wire.VolumeGrow:
		return v.Grow(ctx, c.Ino, c.Size)
	case wire.VolumeSetX:
		return v.SetXattr(ctx, c.Ino, c.Name, c.Value, c.Flags)
	case wire.VolumeRemoveX:
		return v.RemoveXattr(ctx, c.Ino, c.Name)
	}
	return unix.ENOSYS
}

func (o *operation) attr(a *volume.Attr, err error) error {
	if err != nil {
		return err
	}
	attr := wire.VolumeAttr(*a)
	o.answer.Attr = &attr
	return nil
}

func (o *operation) value(value []byte, err error) error {
	o.answer.Value = value
	return err
}

// open opens contents: for writing only if the sandbox may.
func (o *operation) open(ctx context.Context) (err error) {
	flags := unix.O_RDONLY
	if o.writable {
		flags = unix.O_RDWR
	}
	if o.call.Append {
		if !o.writable {
			return unix.EROFS
		}
		flags |= unix.O_APPEND
	}
	o.file, err = o.files.Data(ctx, o.call.Ino, flags)
	if err == nil {
		o.volumes.opened(o.sentry, heldFile{o.call.Volume, o.call.Ino})
	}
	return err
}

// hold notes that a file without a name is open in the sandbox; ino is 0 for none.
func (o *operation) hold(ino uint64) {
	if ino == 0 {
		return
	}
	o.volumes.mu.Lock()
	defer o.volumes.mu.Unlock()
	o.volumes.held[heldFile{o.call.Volume, ino}] = map[*launch.Sentry]bool{o.sentry: true}
}
