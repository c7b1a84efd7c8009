package guestfs

import (
	"encoding/binary"
	"path"
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
)

const (
	// maxWatches is how many directories a watch has, Linux's default, and
	// maxWatchedBytes bounds their names together.
	maxWatches, maxWatchedBytes = 8192, 4 << 20
	// maxPending is how many changed paths wait to be told, maxPendingBytes bounds
	// them together, and maxTold is how many go into a message.
	maxPending, maxPendingBytes, maxTold = 4096, 1 << 20, 128
	// maxToldBytes is when a message has enough paths: with one more, and all
	// that JSON may make of them, it must fit a packet.
	maxToldBytes = 4 << 10
	// watchBuffer has room for any event.
	watchBuffer = 64 << 10
	eventBase   = 16 // bytes of struct inotify_event without its name
)

// watched are the events that are told; a file that is deleted while it is open
// has vanished when its name has.
const watched = linux.IN_CREATE | linux.IN_DELETE | linux.IN_MODIFY | linux.IN_ATTRIB | linux.IN_MOVED_FROM | linux.IN_MOVED_TO |
	linux.IN_DELETE_SELF | linux.IN_MOVE_SELF

// Watcher reports changes of files. It is used by a single goroutine.
type Watcher struct {
	op        *fileOp
	held      *heldFile
	inotify   *vfs.Inotify
	ring      *gate.Notifier
	entry     waiter.Entry
	top       string
	single    bool // top is no directory
	beside    bool // then: the directory that it is in is watched too, and tells when another file takes its place
	recursive bool
	every     bool // each kind of change of a path is told
	watches   watches
	pending   map[string]*api.FileEvent // the last one of each path that waits
	order     []*api.FileEvent          // what waits, the first change first
	waiting   int                       // bytes of the paths in order
	lost      bool
	buf       []byte
}

// watches are the directories that are watched.
type watches struct {
	paths  map[int32]string
	byPath map[string]int32
	size   int // bytes of the paths
}

// full reports whether no more can be watched.
func (w *watches) full() bool { return len(w.paths) >= maxWatches || w.size >= maxWatchedBytes }

func (w *watches) add(wd int32, name string) {
	w.drop(wd)
	if old, ok := w.byPath[name]; ok { // of another directory that had the name
		w.drop(old)
	}
	w.paths[wd], w.byPath[name] = name, wd
	w.size += len(name)
}

func (w *watches) drop(wd int32) {
	if name, ok := w.paths[wd]; ok {
		delete(w.paths, wd)
		delete(w.byPath, name)
		w.size -= len(name)
	}
}

// Watch begins to watch a file or directory. Close it.
func (fs *Files) Watch(req *wire.File, alive func() error) (*Watcher, error) {
	o, err := fs.requestOp(req)
	if err != nil {
		return nil, err
	}
	w := &Watcher{
		op: o, ring: gate.NewNotifier(), top: path.Clean(string(req.Path)), recursive: req.Recursive, every: req.Every,
		watches: watches{paths: map[int32]string{}, byPath: map[string]int32{}}, pending: map[string]*api.FileEvent{}, buf: make([]byte, watchBuffer),
	}
	w.entry.Init(w.ring, waiter.ReadableEvents)
	link := false // its target is in another directory
	err = o.do(func(root vfs.VirtualDentry) error {
		st, err := o.stat(root, w.top, true)
		if err != nil {
			return err
		}
		w.single = typeOf(st.Mode) != typeDir
		if st, err := o.stat(root, w.top, false); err == nil {
			link = typeOf(st.Mode) == typeSymlink
		}
		file, err := vfs.NewInotifyFD(o.ctx, o.vfs(), linux.O_NONBLOCK)
		if err != nil {
			return err
		}
		w.held = o.fs.hold(&heldFile{file: file})
		w.inotify = file.Impl().(*vfs.Inotify)
		_ = file.EventRegister(&w.entry) // these never refuse
		return nil
	})
	if err == nil {
		w.beside = w.single && !link && w.addOne(path.Dir(w.top)) == nil // else the user may not read that directory
		err = w.add(w.top, false, alive)
	}
	if err != nil {
		w.Close()
		return nil, fileError(w.top, err)
	}
	if w.watches.full() {
		w.Close()
		return nil, api.Errorf(api.CodeLimit, "%q has more than %d directories, or their paths take more than %d MiB: watch some of them", w.top, maxWatches-1, maxWatchedBytes>>20)
	}
	return w, nil
}

// Close ends the watch.
func (w *Watcher) Close() {
	if w.held == nil {
		return
	}
	w.op.fs.gate.BeginIO()
	defer w.op.fs.gate.EndIO()
	w.held.file.EventUnregister(&w.entry)
	w.op.fs.letGo(w.held)
}

// add watches name and, if that is asked for, the directories below it. What it
// finds in directories that are new is told as created, because it was perhaps
// made before they were watched.
func (w *Watcher) add(name string, isNew bool, alive func() error) error {
	if err := w.addOne(name); err != nil {
		return err
	}
	if w.single || !w.recursive {
		return nil
	}
	walk := &walk{op: w.op, alive: alive, visit: func(e *walked) error {
		if isNew {
			w.note(e.info.Path, "created", e.info.Type == typeDir)
			if w.every && e.info.Type == typeFile && e.info.Size > 0 {
				w.note(e.info.Path, "modified", false)
			}
		}
		if e.info.Type != typeDir {
			return nil
		}
		if err := w.addOne(e.info.Path); err != nil && !passable(err) {
			return err
		}
		return nil
	}}
	return walk.run(name, "")
}

func (w *Watcher) addOne(name string) error {
	if w.watches.full() {
		w.lost = true
		return nil
	}
	return w.op.do(func(root vfs.VirtualDentry) error {
		if err := w.op.vfs().AccessAt(w.op.ctx, w.op.creds, vfs.MayRead, kern.PathAt(root, name)); err != nil {
			return err
		}
		pop := kern.PathAt(root, name)
		pop.FollowFinalSymlink = name == w.top || w.single
		vd, err := w.op.vfs().GetDentryAt(w.op.ctx, w.op.creds, pop, &vfs.GetDentryOptions{})
		if err != nil {
			return err
		}
		defer vd.DecRef(w.op.ctx)
		wd := w.inotify.AddWatch(vd.Dentry(), watched)
		w.watches.add(wd, name)
		return nil
	})
}

// forget drops the watches of a directory that is gone from where it was, and of
// those below it.
func (w *Watcher) forget(name string) {
	for at, wd := range w.watches.byPath {
		if at != name && !strings.HasPrefix(at, name+"/") {
			continue
		}
		w.watches.drop(wd)
		_ = w.op.do(func(vfs.VirtualDentry) error { return w.inotify.RmWatch(w.op.ctx, wd) }) // it may be gone
	}
}

// Changed is signalled when there may be something to collect.
func (w *Watcher) Changed() <-chan struct{} { return w.ring.C }

// Collect reads the events that the kernel has. It must be called soon after Changed: the
// kernel of the sandbox keeps events without limit.
func (w *Watcher) Collect(alive func() error) error {
	for {
		var n int64
		err := w.op.do(func(vfs.VirtualDentry) error {
			var err error
			n, err = w.held.file.Read(w.op.ctx, usermem.BytesIOSequence(w.buf), vfs.ReadOptions{})
			return err
		})
		if kern.WouldBlock(err) || err == nil && n == 0 {
			return nil
		}
		if err != nil {
			return fileError(w.top, err)
		}
		for _, ev := range parseEvents(w.buf[:n]) {
			if err := w.event(ev, alive); err != nil {
				return err
			}
		}
	}
}

// inotifyEvent is one struct inotify_event.
type inotifyEvent struct {
	wd   int32
	mask uint32
	name string
}

func parseEvents(b []byte) []inotifyEvent {
	var list []inotifyEvent
	for len(b) >= eventBase {
		ev := inotifyEvent{wd: int32(binary.NativeEndian.Uint32(b)), mask: binary.NativeEndian.Uint32(b[4:])}
		size := binary.NativeEndian.Uint32(b[12:])
		b = b[eventBase:]
		if uint64(size) > uint64(len(b)) {
			break
		}
		ev.name, _, _ = strings.Cut(string(b[:size]), "\x00")
		b = b[size:]
		list = append(list, ev)
	}
	return list
}

// event notes an event.
func (w *Watcher) event(ev inotifyEvent, alive func() error) error {
	dir, ok := w.watches.paths[ev.wd]
	if !ok {
		return nil // of a directory that was forgotten
	}
	if ev.mask&linux.IN_IGNORED != 0 {
		w.watches.drop(ev.wd)
		return nil
	}
	name, isDir := dir, ev.mask&linux.IN_ISDIR != 0
	if ev.name != "" {
		name = strings.TrimSuffix(dir, "/") + "/" + ev.name
	} else if dir != w.top {
		return nil // its parent is watched too and says the same
	}
	if w.single && name != w.top || w.beside && ev.mask&(linux.IN_DELETE_SELF|linux.IN_MOVE_SELF) != 0 {
		return nil // an event of a neighbour, or one that the directory reports as well
	}
	switch {
	case ev.mask&(linux.IN_CREATE|linux.IN_MOVED_TO) != 0:
		w.note(name, "created", isDir)
		if w.single { // programs that save a file replace it
			w.forget(w.top)
			_ = w.addOne(w.top) // it may be gone again
			return nil
		}
		if isDir && w.recursive {
			if err := w.add(name, true, alive); err != nil && alive() != nil {
				return err // else it is gone again
			}
		}
	case ev.mask&(linux.IN_DELETE|linux.IN_MOVED_FROM|linux.IN_DELETE_SELF|linux.IN_MOVE_SELF) != 0:
		kind := "deleted"
		if w.every && ev.mask&(linux.IN_MOVED_FROM|linux.IN_MOVE_SELF) != 0 {
			kind = "moved"
		}
		w.note(name, kind, isDir)
		if isDir && ev.name != "" {
			w.forget(name)
		}
	case ev.mask&linux.IN_MODIFY != 0:
		w.note(name, "modified", isDir)
	case ev.mask&linux.IN_ATTRIB != 0:
		w.note(name, "attributes", isDir)
	}
	return nil
}

// note keeps a change until it is taken: the last change of each path, except changes that
// follow its creation. If each change is told, those of a kind that follow each other are one.
func (w *Watcher) note(name, kind string, isDir bool) {
	e, ok := w.pending[name]
	switch {
	case ok && w.every && e.Kind == kind:
		return
	case ok && !w.every:
		if kind == "created" || kind == "deleted" || e.Kind == "attributes" {
			e.Kind, e.Dir = kind, isDir
		}
		return
	}
	if len(w.order) == maxPending || w.waiting+len(name) > maxPendingBytes {
		w.lost = true
		return
	}
	e = &api.FileEvent{Path: name, Kind: kind, Dir: isDir}
	w.pending[name] = e
	w.order = append(w.order, e)
	w.waiting += len(name)
}

// Pending reports whether there is something to take.
func (w *Watcher) Pending() bool { return w.lost || len(w.order) > 0 }

// Take returns the oldest changes that were collected.
func (w *Watcher) Take() *api.FileEvents {
	out := &api.FileEvents{Overflow: w.lost, Changes: []api.FileEvent{}}
	w.lost = false
	size := 0
	for len(w.order) > 0 && len(out.Changes) < maxTold && size < maxToldBytes {
		e := w.order[0]
		w.order = w.order[1:]
		out.Changes = append(out.Changes, *e)
		if w.pending[e.Path] == e {
			delete(w.pending, e.Path)
		}
		size += len(e.Path)
		w.waiting -= len(e.Path)
	}
	return out
}
