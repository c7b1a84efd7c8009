package guestfs

import (
	"context"
	"slices"
	"sync"

	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
)

// HeldKey names the open files of the host side in the kernel's saved state.
const HeldKey = "ramet.held"

// Held are the files that operations of the host side have open in the sandbox while they
// run. They are saved with the kernel so that a child, in which the operations do not
// go on, can close them.
type Held struct {
	mu    sync.Mutex // not saved
	files []*heldFile
}

// heldFile is an open file of the host side.
type heldFile struct {
	file *vfs.FileDescription
	// dir and temp, if dir is not nil, name a file that must not outlive the
	// operation.
	dir  *vfs.FileDescription
	temp string
}

// hold notes that f is open. The caller has begun its access to the gate before it opened
// the file: so every save knows of it.
func (fs *Files) hold(f *heldFile) *heldFile {
	fs.held.mu.Lock()
	defer fs.held.mu.Unlock()
	fs.held.files = append(fs.held.files, f)
	return f
}

// letGo closes f. The caller has begun an access, or nothing runs yet.
func (fs *Files) letGo(f *heldFile) {
	fs.held.mu.Lock()
	fs.held.files = slices.DeleteFunc(fs.held.files, func(o *heldFile) bool { return o == f })
	fs.held.mu.Unlock()
	ctx := fs.k.SupervisorContext()
	if f.dir != nil {
		if f.temp != "" {
			fs.unlinkIn(ctx, f.dir, f.temp)
		}
		f.dir.DecRef(ctx)
	}
	if f.file != nil {
		f.file.DecRef(ctx)
	}
}

// DropInherited closes what the parent's operations had open. Nothing runs yet.
func (fs *Files) DropInherited() {
	for _, f := range slices.Clone(fs.held.files) {
		fs.letGo(f)
	}
}

func (*Held) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/guestfs.Held" }
func (*Held) StateFields() []string { return []string{"files"} }
func (h *Held) StateSave(sink state.Sink) {
	sink.Save(0, &h.files)
}
func (h *Held) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &h.files)
}

func (*heldFile) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/guestfs.heldFile" }
func (*heldFile) StateFields() []string { return []string{"file", "dir", "temp"} }
func (f *heldFile) StateSave(sink state.Sink) {
	sink.Save(0, &f.file)
	sink.Save(1, &f.dir)
	sink.Save(2, &f.temp)
}
func (f *heldFile) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &f.file)
	src.Load(1, &f.dir)
	src.Load(2, &f.temp)
}

func init() {
	state.Register((*Held)(nil))
	state.Register((*heldFile)(nil))
}
