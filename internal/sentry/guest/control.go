package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/syserr"
	"gvisor.dev/gvisor/pkg/usermem"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
	"ramet.dev/ramet/internal/engine/wire"
)

const (
	// controlKey names the socket in the kernel's saved state. A sandbox that
	// may not control itself has none.
	controlKey = "ramet.control"
	// maxTalks bounds the connections to the socket that are served at once;
	// others wait in the backlog.
	maxTalks       = 16
	controlBacklog = 16
)

// controller is the socket by which processes of the sandbox talk to the daemon.
// It is part of the saved state with its connections, so that a process that
// waits for an answer goes on waiting in a child, which is told something else.
// What is saved is only changed by who holds Guest.io for reading.
type controller struct {
	// Saved.
	listener *hearing
	talks    []*talk // guarded by mu
	last     uint64  // number of the last request; guarded by mu

	mu    sync.Mutex
	slots chan struct{} // one for each of talks
	link  link
}

// hearing is an endpoint with the listener for its events, which is saved with
// it: each generation would leave a deaf one behind else.
type hearing struct {
	ep    transport.Endpoint
	wake  *alarm
	entry *waiter.Entry
}

func newHearing(ep transport.Endpoint) *hearing {
	h := &hearing{ep: ep, wake: newAlarm(), entry: &waiter.Entry{}}
	h.entry.Init(h.wake, waiter.ReadableEvents|waiter.WritableEvents|waiter.EventHUp|waiter.EventErr)
	// An endpoint that is no host's never refuses a listener.
	_ = ep.EventRegister(h.entry)
	return h
}

func newController() *controller {
	c := &controller{}
	c.ready()
	return c
}

// ready makes what is not saved.
func (c *controller) ready() {
	c.slots = make(chan struct{}, maxTalks)
	c.link.init()
}

// makeControl makes the socket, and writes the command that talks to it unless
// the image has something of that name.
func (g *Guest) makeControl(command *os.File) error {
	ctx := g.rootContext()
	ep := transport.NewConnectioned(ctx, linux.SOCK_STREAM, g.k)
	if err := ep.Bind(transport.Address{Addr: control.SocketPath}); err != nil {
		return fmt.Errorf("make %s: %w", control.SocketPath, err.ToError())
	}
	if err := g.bindControl(ep.(transport.BoundEndpoint)); err != nil {
		return api.Errorf(api.CodeInvalid, "make %s: %w", control.SocketPath, err)
	}
	if err := ep.Listen(ctx, controlBacklog); err != nil {
		return fmt.Errorf("make %s: %w", control.SocketPath, err.ToError())
	}
	g.control = newController()
	g.control.listener = newHearing(ep)
	g.k.AddStateToCheckpoint(controlKey, g.control)
	return g.writeCommand(command)
}

// bindControl makes the socket's file. One that the image has there goes.
func (g *Guest) bindControl(ep transport.BoundEndpoint) error {
	ctx := g.rootContext()
	root, err := g.root(ctx)
	if err != nil {
		return err
	}
	defer root.DecRef(ctx)
	creds := auth.NewRootCredentials(g.k.RootUserNamespace())
	if err := makeDir(ctx, g.k, creds, root, path.Dir(control.SocketPath), 0o755); err != nil {
		return err
	}
	pop := pathAt(root, control.SocketPath)
	pop.FollowFinalSymlink = false
	if err := g.k.VFS().UnlinkAt(ctx, creds, pop); err != nil && !linuxerr.Equals(linuxerr.ENOENT, err) {
		return err
	}
	// Any user of the sandbox may talk: the right is the sandbox's.
	return g.k.VFS().MknodAt(ctx, creds, pop, &vfs.MknodOptions{Mode: linux.S_IFSOCK | 0o666, Endpoint: ep})
}

func (g *Guest) writeCommand(command *os.File) error {
	data, err := mapFile(command)
	if err != nil {
		return err
	}
	defer unix.Munmap(data)
	ctx := g.rootContext()
	root, err := g.root(ctx)
	if err != nil {
		return err
	}
	defer root.DecRef(ctx)
	creds := auth.NewRootCredentials(g.k.RootUserNamespace())
	dir := path.Dir(control.CommandPath)
	for _, d := range []string{path.Dir(path.Dir(dir)), path.Dir(dir), dir} {
		if d == "/" {
			continue
		}
		if err := makeDir(ctx, g.k, creds, root, d, 0o755); err != nil {
			return err
		}
	}
	file, err := g.k.VFS().OpenAt(ctx, creds, pathAt(root, control.CommandPath), &vfs.OpenOptions{
		Flags: linux.O_WRONLY | linux.O_CREAT | linux.O_EXCL, Mode: 0o755,
	})
	if linuxerr.Equals(linuxerr.EEXIST, err) {
		return nil
	}
	if err == nil {
		defer file.DecRef(ctx)
		var n int64
		if n, err = file.Write(ctx, usermem.BytesIOSequence(data), vfs.WriteOptions{}); err == nil && n < int64(len(data)) {
			err = linuxerr.ENOSPC
		}
	}
	if linuxerr.Equals(linuxerr.ENOSPC, err) {
		return api.Errorf(api.CodeNoSpace, "write %s: the disk is full, or its limit below the %d KiB that the command takes", control.CommandPath, len(data)>>10)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", control.CommandPath, err)
	}
	return nil
}

// serveSocket accepts and serves connections. Its goroutines end with the sandbox.
func (g *Guest) serveSocket() {
	c := g.control
	c.mu.Lock()
	inherited := slices.Clone(c.talks)
	c.mu.Unlock()
	for _, t := range inherited {
		c.slots <- struct{}{} // no more than maxTalks were saved
		go g.serveTalk(t)
	}
	go func() {
		for {
			c.slots <- struct{}{}
			t := g.accept()
			for t == nil {
				<-c.listener.wake.c
				t = g.accept()
			}
			go g.serveTalk(t)
		}
	}()
}

// accept returns a new connection, or nil if there is none.
func (g *Guest) accept() *talk {
	g.io.RLock()
	defer g.io.RUnlock()
	ep, err := g.control.listener.ep.Accept(g.rootContext(), nil)
	if err != nil {
		return nil
	}
	t := &talk{hearing: newHearing(ep)}
	g.control.mu.Lock()
	defer g.control.mu.Unlock()
	g.control.talks = append(g.control.talks, t)
	return t
}

// hangUp ends a connection.
func (g *Guest) hangUp(t *talk) {
	g.io.RLock()
	defer g.io.RUnlock()
	t.hearing.ep.EventUnregister(t.hearing.entry)
	t.hearing.ep.Close(g.rootContext())
	c := g.control
	c.mu.Lock()
	defer c.mu.Unlock()
	c.talks = slices.DeleteFunc(c.talks, func(x *talk) bool { return x == t })
	<-c.slots
}

// thaw readies a loaded controller. The request that the state was saved for is
// told answer; all others that waited are told to ask again.
func (c *controller) thaw(answer *wire.ControlAnswer) {
	c.ready()
	c.listener.wake.c = make(chan struct{}, 1)
	for _, t := range c.talks {
		t.hearing.wake.c = make(chan struct{}, 1)
		switch {
		case t.pending == 0:
			continue
		case answer != nil && t.pending == answer.ID:
			t.out = append(append(t.out, answer.Reply...), '\n')
		default:
			t.out = append(t.out, refusal(api.Errorf(api.CodeCanceled, "the sandbox was forked, restored or rolled back while this waited: ask again"))...)
		}
		t.pending = 0
	}
}

// refusal is the line that reports err.
func refusal(err error) []byte {
	e := api.AsError(err)
	line, merr := json.Marshal(control.Reply{Error: &control.Error{Code: string(e.Code), Detail: e.Detail, Field: e.Field, ExitCode: e.Code.ExitCode()}})
	if merr != nil { // text and a number always can be
		line = []byte(`{"error":{"code":"internal","detail":"the answer cannot be encoded","exit_code":1}}`)
	}
	return append(line, '\n')
}

func isWait(err *syserr.Error) bool { return err == syserr.ErrWouldBlock }

// The methods below are what gVisor's state package asks of saved types;
// upstream generates them with a tool that is not part of its Go module.

func (*controller) StateTypeName() string {
	return "ramet.dev/ramet/internal/sentry/guest.controller"
}
func (*controller) StateFields() []string { return []string{"listener", "talks", "last"} }
func (c *controller) StateSave(sink state.Sink) {
	sink.Save(0, &c.listener)
	sink.Save(1, &c.talks)
	sink.Save(2, &c.last)
}
func (c *controller) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &c.listener)
	src.Load(1, &c.talks)
	src.Load(2, &c.last)
}

func (*hearing) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/guest.hearing" }
func (*hearing) StateFields() []string { return []string{"ep", "wake", "entry"} }
func (h *hearing) StateSave(sink state.Sink) {
	sink.Save(0, &h.ep)
	sink.Save(1, &h.wake)
	sink.Save(2, &h.entry)
}
func (h *hearing) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &h.ep)
	src.Load(1, &h.wake)
	src.Load(2, &h.entry)
}

func init() {
	state.Register((*controller)(nil))
	state.Register((*hearing)(nil))
	state.Register((*talk)(nil))
}
