package selfctl

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
	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/syserr"
	"gvisor.dev/gvisor/pkg/usermem"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
)

const (
	// StateKey names the controller in the kernel's saved state. A sandbox that
	// may not control itself has none.
	StateKey = "ramet.control"
	// maxConns bounds the connections to the socket that are served at once;
	// others wait in the backlog.
	maxConns       = 16
	controlBacklog = 16
)

// Controller is the socket by which processes of the sandbox talk to the daemon.
// It is part of the saved state with its connections, so that a process that
// waits for an answer goes on waiting in a child, which is told something else.
// What is saved is only changed within an access to the gate.
type Controller struct {
	// Saved.
	listener *endpoint
	conns    []*conn // guarded by mu
	last     uint64  // number of the last request; guarded by mu

	// Not saved.
	k     *kern.Kernel
	gate  *gate.Gate
	mu    sync.Mutex
	slots chan struct{} // one for each of conns
	link  link
}

// endpoint is an end of a socket with the listener for its events, which is saved with
// it: else each generation would leave a deaf one behind.
type endpoint struct {
	ep    transport.Endpoint
	wake  *gate.Notifier
	entry *waiter.Entry
}

func newEndpoint(ep transport.Endpoint) *endpoint {
	e := &endpoint{ep: ep, wake: gate.NewNotifier(), entry: &waiter.Entry{}}
	e.entry.Init(e.wake, waiter.ReadableEvents|waiter.WritableEvents|waiter.EventHUp|waiter.EventErr)
	// An endpoint that is no host's never refuses a listener.
	_ = ep.EventRegister(e.entry)
	return e
}

// New makes the socket, and writes the command that talks to it unless the image has
// something of that name. The caller saves the controller with the kernel under StateKey.
func New(k *kern.Kernel, g *gate.Gate, command *os.File) (*Controller, error) {
	ctx := k.SupervisorContext()
	ep := transport.NewConnectioned(ctx, linux.SOCK_STREAM, k.Kernel)
	if err := ep.Bind(transport.Address{Addr: control.SocketPath}); err != nil {
		return nil, fmt.Errorf("make %s: %w", control.SocketPath, err.ToError())
	}
	c := &Controller{}
	c.ready(k, g)
	if err := c.bind(ep.(transport.BoundEndpoint)); err != nil {
		return nil, api.Errorf(api.CodeInvalid, "make %s: %w", control.SocketPath, err)
	}
	if err := ep.Listen(ctx, controlBacklog); err != nil {
		return nil, fmt.Errorf("make %s: %w", control.SocketPath, err.ToError())
	}
	c.listener = newEndpoint(ep)
	return c, c.writeCommand(command)
}

// ready makes what is not saved.
func (c *Controller) ready(k *kern.Kernel, g *gate.Gate) {
	c.k, c.gate = k, g
	c.slots = make(chan struct{}, maxConns)
	c.link.init()
}

// Thaw readies a controller that was loaded with the kernel k. The request that the state
// was saved for gets answer; all others that waited are told to ask again.
func (c *Controller) Thaw(k *kern.Kernel, g *gate.Gate, answer *wire.ControlAnswer) {
	c.ready(k, g)
	c.listener.wake.Revive()
	for _, t := range c.conns {
		t.end.wake.Revive()
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

// bind makes the socket's file, in place of a file that the image has there.
func (c *Controller) bind(ep transport.BoundEndpoint) error {
	ctx := c.k.SupervisorContext()
	root, err := c.k.Root(ctx)
	if err != nil {
		return err
	}
	defer root.DecRef(ctx)
	creds := c.k.RootCredentials()
	if err := c.k.MakeDir(ctx, creds, root, path.Dir(control.SocketPath), 0o755); err != nil {
		return err
	}
	pop := kern.PathAt(root, control.SocketPath)
	pop.FollowFinalSymlink = false
	if err := c.k.VFS().UnlinkAt(ctx, creds, pop); err != nil && !linuxerr.Equals(linuxerr.ENOENT, err) {
		return err
	}
	// Any user of the sandbox may connect: the grant is the sandbox's.
	return c.k.VFS().MknodAt(ctx, creds, pop, &vfs.MknodOptions{Mode: linux.S_IFSOCK | 0o666, Endpoint: ep})
}

func (c *Controller) writeCommand(command *os.File) error {
	data, err := kern.MapFile(command)
	if err != nil {
		return err
	}
	defer unix.Munmap(data)
	ctx := c.k.SupervisorContext()
	root, err := c.k.Root(ctx)
	if err != nil {
		return err
	}
	defer root.DecRef(ctx)
	creds := c.k.RootCredentials()
	dir := path.Dir(control.CommandPath)
	for _, d := range []string{path.Dir(path.Dir(dir)), path.Dir(dir), dir} {
		if d == "/" {
			continue
		}
		if err := c.k.MakeDir(ctx, creds, root, d, 0o755); err != nil {
			return err
		}
	}
	file, err := c.k.VFS().OpenAt(ctx, creds, kern.PathAt(root, control.CommandPath), &vfs.OpenOptions{
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

// Serve accepts and serves connections. Its goroutines end with the sandbox.
func (c *Controller) Serve() {
	c.mu.Lock()
	inherited := slices.Clone(c.conns)
	c.mu.Unlock()
	for _, t := range inherited {
		c.slots <- struct{}{} // no more than maxConns were saved
		go c.serveConn(t)
	}
	go func() {
		for {
			c.slots <- struct{}{}
			t := c.accept()
			for t == nil {
				<-c.listener.wake.C
				t = c.accept()
			}
			go c.serveConn(t)
		}
	}()
}

// accept returns a new connection, or nil if there is none.
func (c *Controller) accept() *conn {
	c.gate.BeginIO()
	defer c.gate.EndIO()
	ep, err := c.listener.ep.Accept(c.k.SupervisorContext(), nil)
	if err != nil {
		return nil
	}
	t := &conn{end: newEndpoint(ep)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, t)
	return t
}

// hangUp ends a connection.
func (c *Controller) hangUp(t *conn) {
	c.gate.BeginIO()
	defer c.gate.EndIO()
	t.end.ep.EventUnregister(t.end.entry)
	t.end.ep.Close(c.k.SupervisorContext())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = slices.DeleteFunc(c.conns, func(x *conn) bool { return x == t })
	<-c.slots
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

// StateTypeName implements state.Type.
func (*Controller) StateTypeName() string {
	return "ramet.dev/ramet/internal/sentry/selfctl.Controller"
}

// StateFields implements state.Type.
func (*Controller) StateFields() []string { return []string{"listener", "conns", "last"} }

// StateSave implements state.SaverLoader.
func (c *Controller) StateSave(sink state.Sink) {
	sink.Save(0, &c.listener)
	sink.Save(1, &c.conns)
	sink.Save(2, &c.last)
}

// StateLoad implements state.SaverLoader.
func (c *Controller) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &c.listener)
	src.Load(1, &c.conns)
	src.Load(2, &c.last)
}

func (*endpoint) StateTypeName() string { return "ramet.dev/ramet/internal/sentry/selfctl.endpoint" }
func (*endpoint) StateFields() []string { return []string{"ep", "wake", "entry"} }
func (e *endpoint) StateSave(sink state.Sink) {
	sink.Save(0, &e.ep)
	sink.Save(1, &e.wake)
	sink.Save(2, &e.entry)
}
func (e *endpoint) StateLoad(_ context.Context, src state.Source) {
	src.Load(0, &e.ep)
	src.Load(1, &e.wake)
	src.Load(2, &e.entry)
}

func init() {
	state.Register((*Controller)(nil))
	state.Register((*endpoint)(nil))
	state.Register((*conn)(nil))
}
