package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/confinement"
	"ramet.dev/ramet/internal/engine/hostuser"
	"ramet.dev/ramet/internal/engine/wire"
)

// The zygote takes tens of milliseconds for its own start, and some for a sentry. While it
// does not answer, no other caller gets a sentry.
const (
	zygoteTimeout = time.Minute
	spawnTimeout  = 10 * time.Second
)

// zygotePool has the zygote, the process that forks itself into sentries: package sentry
// says why. Sentries are children of this process, as if it had started them. It is safe
// for concurrent use; the zygote makes one sentry at a time.
type zygotePool struct {
	cfg   Config
	asked wire.ZygoteConfig

	turn   turn    // its holder uses the field below
	zygote *zygote // nil until it is needed, and after it has failed
}

// turn is held by one at a time. It has room for one.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) wait() { t <- struct{}{} }
func (t turn) give() { <-t }

// take waits for the turn, until ctx ends: nobody has it then who has given up.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if ctx.Err() != nil {
		t.give()
		return context.Cause(ctx)
	}
	return nil
}

func newZygotePool(cfg Config, asked wire.ZygoteConfig) zygotePool {
	return zygotePool{cfg: cfg, asked: asked, turn: newTurn()}
}

// spawn returns the process id of a new sentry that has duplicates of fds, in the order
// of wire.Spawn. It blocks while others are started, and for its own start also when ctx is
// cancelled meanwhile: that takes milliseconds, and ends with a process or none.
func (n *zygotePool) spawn(ctx context.Context, fds []int) (pid int, err error) {
	return n.ask(ctx, &wire.Spawn{}, 1, fds)
}

// ask sends asked, for which it takes so many users of the zygote's, if those of sentries are their own.
func (n *zygotePool) ask(ctx context.Context, asked *wire.Spawn, users int, fds []int) (pid int, err error) {
	if err := n.turn.take(ctx); err != nil {
		return 0, err
	}
	defer n.turn.give()
	if err := n.ready(users); err != nil {
		return 0, err
	}
	if n.asked.OwnUsers {
		asked.User = n.zygote.takeUsers(users)
	}
	pid, err = n.zygote.spawn(asked, fds)
	if n.zygote.broken {
		n.end()
		return 0, api.Errorf(api.CodeSandboxDied, "fork zygote: %w", err)
	}
	return pid, err
}

// ready makes sure that there is a zygote, and that it has so many users left: no
// user is given twice. Another zygote has other users, see hostuser.FreeRange. The
// caller has the turn.
func (n *zygotePool) ready(users int) error {
	if n.zygote != nil && n.asked.OwnUsers && n.zygote.usersLeft() < users {
		n.end()
	}
	if n.zygote != nil {
		return nil
	}
	var err error
	for range startAttempts {
		if n.zygote, err = startZygote(n.cfg, n.asked); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("start zygote: %w", err)
	}
	return nil
}

// close ends the zygote. Its sentries go on.
func (n *zygotePool) close() {
	n.turn.wait()
	defer n.turn.give()
	n.end()
}

// end ends the zygote if there is one. The caller has the turn.
func (n *zygotePool) end() {
	if n.zygote != nil {
		n.zygote.end()
		n.zygote = nil
	}
}

// zygote is a running zygote, or a template: a process that forks itself into sentries.
type zygote struct {
	name    string // of its kind
	process *os.Process
	conn    *wire.Conn
	log     string
	logger  *slog.Logger
	timeout time.Duration // zygoteTimeout, then spawnTimeout but in tests
	broken  bool          // its state is unknown: a call failed half-way
	users   int           // of its user namespace, of which the first is its own
	taken   int           // by sentries
}

// usersLeft returns how many users of the namespace nobody was given.
func (z *zygote) usersLeft() int { return z.users - 1 - z.taken }

// takeUsers returns the first of n of them.
func (z *zygote) takeUsers(n int) int {
	first := z.taken + 1
	z.taken += n
	return first
}

// startZygote returns when it is ready.
func startZygote(cfg Config, asked wire.ZygoteConfig) (z *zygote, err error) {
	asked.BuildID = cfg.BuildID
	arg, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	z = &zygote{name: "zygote", conn: ours, log: filepath.Join(cfg.Dir, cmp.Or(cfg.Zygote, "zygote")+".log"), logger: cfg.Log, timeout: zygoteTimeout, users: 1}
	if asked.OwnUsers {
		z.users = hostuser.RangeSize
	}
	log, err := os.OpenFile(z.log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(cfg.Executable, "sentry", string(arg))
	cmd.Args[0] = "ramet-sentry"
	// Nothing of the daemon's environment reaches a sandbox. A sentry uses one processor
	// until it is a sandbox, see birth.UseProcessors: it has fewer threads
	// then. A fixed number keeps the runtime from asking for the affinity mask every
	// second, which the filter refuses, and from keeping files of the control group
	// open to that end.
	cmd.Env = []string{"GOMAXPROCS=1", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	switch {
	case asked.Namespaces:
		err = confinement.Isolate(cmd.SysProcAttr, asked.OwnUsers)
	case os.Geteuid() == 0 && hostuser.MayBecome():
		// Sentries without namespaces share a user. Where no user is free it is root, without
		// capabilities.
		if user, ferr := hostuser.FreeRange("/"); ferr == nil {
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}
		}
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		ours.Close()
		os.Remove(z.log)
		return nil, err
	}
	theirs.Close() // now the end of the process is the end of ours
	z.process = cmd.Process
	if _, err := z.receive(); err != nil {
		z.end()
		return nil, err
	}
	z.timeout = spawnTimeout
	return z, nil
}

// spawn has the process fork itself, see zygotePool.spawn.
func (z *zygote) spawn(asked *wire.Spawn, fds []int) (pid int, err error) {
	if err := z.conn.SendJSON(wire.TypeCall, asked, fds...); err != nil {
		z.broken = true
		return 0, z.explain(err)
	}
	return z.receive()
}

func (z *zygote) receive() (pid int, err error) {
	err = z.conn.SetReadDeadline(time.Now().Add(z.timeout))
	var p *wire.Packet
	if err == nil {
		p, err = z.conn.Receive()
	}
	if err != nil {
		z.broken = true
		return 0, z.explain(err)
	}
	defer p.Close()
	var spawned wire.Spawned
	err = p.Decode(&spawned)
	return spawned.PID, err
}

// explain adds the reason that the process's log has, and logs a crash.
func (z *zygote) explain(err error) error {
	log, _ := readEnd(z.log, 1<<20) // there may be none
	logCrash(z.logger, z.name, log)
	return fmt.Errorf("%w: %s", err, reasonIn(string(log)))
}

// end ends the process and waits for it.
func (z *zygote) end() {
	z.conn.Close()
	_ = z.process.Kill()    // it may have ended
	_, _ = z.process.Wait() // it was killed, so the result says nothing
	os.Remove(z.log)
}
