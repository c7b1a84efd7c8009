package guest

import (
	"context"
	"slices"
	"sync"

	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip"
)

// heldKey names what the host side holds in the kernel's saved state.
const heldKey = "ramet.held"

// held is what operations of the host side have open in the sandbox while they
// run. It is saved with the kernel so that a child, in which nobody goes on with
// them, can give it back.
type held struct {
	mu    sync.Mutex // not saved
	files []*heldFile
	conns []tcpip.Endpoint // of connections to ports
}

// heldFile is an open file of the host side.
type heldFile struct {
	file *vfs.FileDescription
	// dir and temp, if dir is not nil, name a file that must not outlive the
	// operation.
	dir  *vfs.FileDescription
	temp string
}

// hold notes that f is open. The caller holds io for reading, since before it
// opened the file: so every save knows of it.
func (g *Guest) hold(f *heldFile) *heldFile {
	g.held.mu.Lock()
	defer g.held.mu.Unlock()
	g.held.files = append(g.held.files, f)
	return f
}

// letGo closes f. The caller holds io for reading, or nothing runs yet.
func (g *Guest) letGo(f *heldFile) {
	g.held.mu.Lock()
	g.held.files = slices.DeleteFunc(g.held.files, func(o *heldFile) bool { return o == f })
	g.held.mu.Unlock()
	ctx := g.rootContext()
	if f.dir != nil {
		if f.temp != "" {
			g.unlinkIn(ctx, f.dir, f.temp)
		}
		f.dir.DecRef(ctx)
	}
	if f.file != nil {
		f.file.DecRef(ctx)
	}
}

// holdConn is hold for an end of a connection. It reports whether there is room
// for one more.
func (g *Guest) holdConn(ep tcpip.Endpoint) bool {
	g.held.mu.Lock()
	defer g.held.mu.Unlock()
	if len(g.held.conns) == maxConns {
		return false
	}
	g.held.conns = append(g.held.conns, ep)
	return true
}

// letConnGo forgets an end, which the caller closes.
func (g *Guest) letConnGo(ep tcpip.Endpoint) {
	g.held.mu.Lock()
	defer g.held.mu.Unlock()
	g.held.conns = slices.DeleteFunc(g.held.conns, func(o tcpip.Endpoint) bool { return o == ep })
}

// dropInherited gives back what the parent's operations held. Processes see that
// connections from outside were reset.
func (g *Guest) dropInherited() {
	for _, ep := range slices.Clone(g.held.conns) {
		g.letConnGo(ep)
		ep.Abort()
		ep.Close()
	}
	for _, f := range slices.Clone(g.held.files) {
		g.letGo(f)
	}
}

func (*held) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/guest.held" }
func (*held) StateFields() []string { return []string{"files", "conns"} }
func (h *held) StateSave(sink state.Sink) {
	sink.Save(0, &h.files)
	sink.Save(1, &h.conns)
}
func (h *held) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &h.files)
	src.Load(1, &h.conns)
}

func (*heldFile) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/guest.heldFile" }
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
	state.Register((*held)(nil))
	state.Register((*heldFile)(nil))
}
