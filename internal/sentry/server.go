package sentry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/guest"
	"ramet.dev/ramet/internal/sentry/volumes"
)

// server serves the calls of the host side. Each connection has a goroutine of
// its own, which ends with it; all end with the process.
type server struct {
	lifeline  *wire.Conn
	listener  *net.UnixListener
	isolation api.Isolation

	volumes *volumes.Client // of the blank and of the guest

	mu        sync.Mutex
	blank     *guest.Blank // until Boot or Load took it
	guest     *guest.Guest // after it
	committed bool
}

func newServer(blank *guest.Blank, iso api.Isolation, lifeline *wire.Conn, listener *net.UnixListener) *server {
	return &server{volumes: blank.Volumes, blank: blank, isolation: iso, lifeline: lifeline, listener: listener}
}

// serve accepts connections until the process ends.
func (s *server) serve() error {
	go s.watchLifeline()
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			return fmt.Errorf("accept connection: %w", err)
		}
		go s.serveConn(wire.NewConn(c))
	}
}

// watchLifeline ends the process when the host side goes away before the
// sandbox was committed.
func (s *server) watchLifeline() {
	_, err := s.lifeline.Receive()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !s.committed {
		os.Exit(0)
	}
}

// serveConn serves the one call of a connection.
func (s *server) serveConn(c *wire.Conn) {
	defer c.Close()
	p, err := c.ReceiveCall()
	if err != nil || p.Type != wire.TypeCall {
		return // a peer that sends no call gets no answer
	}
	defer p.Close()
	var call wire.Call
	if err := json.Unmarshal(p.Body, &call); err != nil {
		_ = c.Fail(api.Errorf(api.CodeInvalid, "decode call: %w", err)) // the peer may be gone
		return
	}
	if !call.Op.Receives() {
		c.Rest()
	}
	reply, err := s.dispatch(c, &call, p)
	if err == nil {
		err = s.answer(c, &call, reply)
	}
	if err != nil {
		_ = c.Fail(err) // likewise
	}
	if call.Op == wire.OpQuit {
		os.Exit(0) // nothing runs here any more, whether memory was given back or not
	}
}

// answer sends a reply. It returns an error that the peer should see.
func (s *server) answer(c *wire.Conn, call *wire.Call, reply any) error {
	var fds []int
	if r, ok := reply.(withFiles); ok {
		reply, fds = r.body, r.fds
	}
	err := c.SendJSON(wire.TypeReply, reply, fds...)
	if errors.Is(err, wire.ErrTooLarge) || errors.Is(err, wire.ErrTooManyFiles) {
		return api.Errorf(api.CodeLimit, "the answer to %s is too large", call.Op)
	}
	if g, _ := s.running(); err != nil && g != nil {
		switch call.Op { // pins that the caller does not know of
		case wire.OpFreeze:
			g.Abandon(call.Freeze.ID)
		case wire.OpView:
			g.Release(call.View.ID)
		}
	}
	return nil
}

// withFiles is a reply with descriptors, which stay the sandbox's.
type withFiles struct {
	body any
	fds  []int
}

var errCall = api.Errorf(api.CodeInvalid, "call has no body of its op")

// dispatch runs one call and returns the body of its reply.
func (s *server) dispatch(c *wire.Conn, call *wire.Call, p *wire.Packet) (any, error) {
	switch call.Op {
	case wire.OpBoot:
		return s.boot(call.Boot, p)
	case wire.OpLoad:
		return s.load(call.Load, p)
	case wire.OpInfo:
		return s.info()
	case wire.OpVolumes:
		s.volumes.Serve(c)
		return struct{}{}, nil
	}
	g, err := s.running()
	if err != nil && call.Op != wire.OpQuit {
		return nil, err
	}
	switch call.Op {
	case wire.OpQuit:
		if g == nil {
			return struct{}{}, nil
		}
		return struct{}{}, g.End()
	case wire.OpCommit:
		return s.commit()
	case wire.OpExec:
		return s.exec(g, c, call.Exec, g.Processes.Exec)
	case wire.OpReattach:
		return s.exec(g, c, call.Exec, g.Processes.ResumeExec)
	case wire.OpFile:
		return s.file(g, c, call.File)
	case wire.OpStart, wire.OpAttach, wire.OpWait, wire.OpInput, wire.OpSignal, wire.OpResize, wire.OpForget, wire.OpPS, wire.OpProcess, wire.OpTrace:
		return s.process(g, c, call)
	case wire.OpControl:
		return nil, s.control(g, c)
	case wire.OpPorts:
		return g.Ports.List(), nil
	case wire.OpDial:
		return nil, dial(g, c, call.Dial)
	case wire.OpContexts, wire.OpContext, wire.OpRun:
		return s.context(g, c, call)
	case wire.OpFreeze:
		return freeze(g, c, call.Freeze, p)
	case wire.OpView:
		if call.View == nil {
			return nil, errCall
		}
		return g.View(call.View, c.HungUp)
	case wire.OpRelease:
		return release(g, call.Release)
	case wire.OpPatch:
		return patch(g, c, call.Patch, p)
	case wire.OpAdopt:
		return s.adopt(g)
	case wire.OpIdentify:
		if call.Identify == nil {
			return nil, errCall
		}
		return struct{}{}, g.Identify(*call.Identify)
	case wire.OpEnviron:
		if call.Environ == nil {
			return nil, errCall
		}
		g.SetEnv(call.Environ.Env)
		return struct{}{}, nil
	case wire.OpNetwork:
		return network(g, call.Network, p)
	case wire.OpPause:
		return struct{}{}, g.Gate.Pause()
	case wire.OpResume:
		return struct{}{}, g.Gate.Resume()
	}
	return nil, api.Errorf(api.CodeInvalid, "no op %q", call.Op)
}

// running returns the sandbox, or an error while there is none.
func (s *server) running() (*guest.Guest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guest == nil {
		return nil, api.Errorf(api.CodeWrongState, "sentry is blank")
	}
	return s.guest, nil
}

// takeBlank hands out the blank, once.
func (s *server) takeBlank() (*guest.Blank, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blank
	if b == nil {
		return nil, api.Errorf(api.CodeWrongState, "sentry is not blank")
	}
	s.blank = nil
	return b, nil
}

func (s *server) setGuest(g *guest.Guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guest = g
	time.AfterFunc(settleAfter, func() { settle(g) })
	go endWithInit(g)
}

// endWithInit ends the process when the guest's init does. Package launch finds
// the reason in the log.
func endWithInit(g *guest.Guest) {
	fmt.Fprintf(os.Stderr, "sentry: init exited: %s\n", g.AwaitInit())
	_ = g.End() // memory that it does not give back goes with the last relative
	os.Exit(1)
}

// settleAfter keeps the first collection away from the first commands, and from
// the start of siblings.
const settleAfter = 3 * time.Second

// settle gives back the memory that starting took, and the precision of timers that the
// zygote gave up for it.
func settle(g *guest.Guest) {
	_ = setTimerSlack(settledSlack) // else timers are a millisecond late
	g.Settle()
}

// How late timers may be (PR_SET_TIMERSLACK in prctl(2)). Go's monitor thread wakes every
// 20 µs while a program is busy, or as late as it may: with bornSlack a start takes an
// eighth less processor time. The other is Linux's default.
const (
	bornSlack    = time.Millisecond
	settledSlack = 50 * time.Microsecond
)

func setTimerSlack(d time.Duration) error {
	return allThreads(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(d), 0)
}

func (s *server) boot(req *wire.Boot, p *wire.Packet) (any, error) {
	image, err := p.Take(0)
	if err != nil || req == nil {
		return nil, errors.Join(errCall, err)
	}
	b, err := s.takeBlank()
	if err != nil {
		image.Close()
		return nil, err
	}
	next := 1
	take := func(is bool) (f *os.File) {
		if is && err == nil {
			f, err = p.Take(next)
			next++
		}
		return f
	}
	command, channel := take(req.Control), take(req.Network)
	if command != nil {
		defer command.Close()
	}
	if err != nil {
		image.Close()
		return nil, errors.Join(errCall, err)
	}
	g, err := b.Boot(req.Common, req.Volumes, image, command, channel)
	if err != nil {
		return nil, err
	}
	s.setGuest(g)
	return wire.Loaded{}, nil
}

func (s *server) load(req *wire.Load, p *wire.Packet) (any, error) {
	if req == nil {
		return nil, errCall
	}
	origin := 2 + len(req.Generations) // files
	if req.Decoded {
		origin = 0
	}
	want := origin
	if req.Network {
		want++
	}
	if len(p.Files) != want {
		return nil, errCall
	}
	b, err := s.takeBlank()
	if err != nil {
		return nil, err
	}
	var files guest.LoadFiles
	if !req.Decoded {
		files.Snapshot, files.Image, files.Generations = p.Files[0], p.Files[1], p.Files[2:origin]
		defer files.Snapshot.Close()
	}
	if req.Network {
		files.Channel = p.Files[origin]
	}
	p.Files = nil // taken over
	g, loaded, err := b.Load(req, files)
	if err != nil {
		return nil, err
	}
	s.setGuest(g)
	return loaded, nil
}

// commit detaches the sandbox from its lifeline.
func (s *server) commit() (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = true
	return struct{}{}, nil
}

// adopt tells a new daemon the state and the files of the sandbox.
func (s *server) adopt(g *guest.Guest) (any, error) {
	info, err := g.Info()
	if err != nil {
		return nil, err
	}
	memory, files, gens := g.Descriptors()
	fds := []int{int(memory.Fd()), int(files.Fd())}
	for _, f := range gens {
		fds = append(fds, int(f.Fd()))
	}
	return withFiles{wire.Adopted{
		ID: info.ID, State: info.State, Isolation: s.isolation, Generations: info.Generations, Pins: g.Pins(),
	}, fds}, nil
}

func (s *server) info() (any, error) {
	g, err := s.running()
	if err != nil {
		return wire.Info{State: "blank"}, nil
	}
	info, err := g.Info()
	if err != nil {
		return nil, err
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	info.SentryBytes = int64(mem.Sys - mem.HeapReleased)
	return info, nil
}

func freeze(g *guest.Guest, c *wire.Conn, req *wire.Freeze, p *wire.Packet) (any, error) {
	file, err := p.Take(0)
	if err != nil || req == nil {
		return nil, errors.Join(errCall, err)
	}
	defer file.Close()
	return g.Freeze(req, file, c.HungUp)
}

// network connects the sandbox with a gateway, or takes its network away.
func network(g *guest.Guest, req *wire.Network, p *wire.Packet) (any, error) {
	if req == nil {
		return nil, errCall
	}
	if !req.Connected {
		unwritten, err := g.Network.Disconnect()
		return wire.Networked{Unwritten: unwritten}, err
	}
	channel, err := p.Take(0)
	if err != nil {
		return nil, errors.Join(errCall, err)
	}
	unwritten, err := g.Network.Connect(channel)
	return wire.Networked{Unwritten: unwritten}, err
}

func patch(g *guest.Guest, c *wire.Conn, req *wire.Patch, p *wire.Packet) (any, error) {
	file, err := p.Take(0)
	if err != nil || req == nil {
		return nil, errors.Join(errCall, err)
	}
	defer file.Close()
	return g.Tree.Patch(req, file, c.HungUp)
}

func release(g *guest.Guest, req *wire.Release) (any, error) {
	if req == nil {
		return nil, errCall
	}
	if req.Keep != nil {
		g.KeepOnly(req.Keep)
	} else {
		g.Release(req.ID)
	}
	return struct{}{}, nil
}
