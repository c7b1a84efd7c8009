package launch

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/cgroup"
	"ramet.dev/ramet/internal/engine/wire"
)

// Template is a process that has loaded the state of a frozen sandbox, and forks itself into sentries that have it,
// too. It is safe for concurrent use, and makes one sentry at a time.
type Template struct {
	launcher *Launcher
	process  process     // its log, and its control group
	failed   atomic.Bool // it is of no use any more
	turn     turn        // its holder uses the field below
	zygote   *zygote     // nil before it is there and after its end
}

// NewTemplate starts a template for at most n sentries. files are as of a wire.Decode, and stay the caller's. limits
// bound it while it loads. It is an error of CodeUnsupported where sentries have no namespaces.
func (l *Launcher) NewTemplate(ctx context.Context, n int, limits cgroup.Limits, decode *wire.Decode, files []*os.File) (*Template, error) {
	if l.nsReason != "" {
		return nil, api.Errorf(api.CodeUnsupported, "start template: %s", l.nsReason)
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	t := &Template{launcher: l, process: process{key: key, dir: l.cfg.Dir}, turn: newTurn()}
	if err := t.begin(ctx, n, limits); err != nil {
		t.Close()
		return nil, fmt.Errorf("start template: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { t.zygote.conn.Close() })
	err = t.zygote.load(decode, files)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("load template: %w", err)
	}
	return t, nil
}

// begin returns when the process is there. It has loaded nothing yet.
func (t *Template) begin(ctx context.Context, n int, limits cgroup.Limits) (err error) {
	l := t.launcher
	users := 1
	if l.noUsers == "" {
		users += n
	}
	var given donation
	defer given.close()
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			ours.Close()
		}
	}()
	given.add(theirs)
	if err := t.process.equip(l.cfg.Cgroups, limits, &given); err != nil {
		return err
	}
	pid, err := l.zygotes.ask(ctx, &wire.Spawn{Template: &wire.SpawnTemplate{Users: users}}, users, descriptors(given.files))
	var handle *os.Process
	if err == nil {
		handle, err = os.FindProcess(pid)
	}
	if err != nil {
		t.process.endUnknown()
		return err
	}
	t.zygote = &zygote{name: "template", process: handle, conn: ours, log: t.process.logPath(), logger: l.cfg.Log, timeout: zygoteTimeout, users: users}
	return nil
}

// load has a template load a state, and waits until it has.
func (z *zygote) load(decode *wire.Decode, files []*os.File) error {
	err := z.conn.SendJSON(wire.TypeCall, decode, descriptors(files)...)
	if err == nil {
		_, err = z.receive()
	}
	z.timeout = spawnTimeout
	return err
}

// Start starts a sentry that has the state, and waits until it is ready. Cancelling ctx kills it. After another error
// the template starts none any more: it is of CodeUnavailable from then on.
func (t *Template) Start(ctx context.Context) (*Sentry, error) {
	if t.failed.Load() {
		return nil, api.Errorf(api.CodeUnavailable, "the template has failed")
	}
	s, err := t.launcher.startOnce(ctx, t)
	if err != nil {
		if ctx.Err() == nil {
			t.failed.Store(true)
		}
		return nil, err
	}
	s.decoded = true
	return s, nil
}

func (t *Template) spawn(ctx context.Context, fds []int) (pid int, err error) {
	if err := t.turn.take(ctx); err != nil {
		return 0, err
	}
	defer t.turn.give()
	z, asked := t.zygote, &wire.Spawn{}
	if z == nil || z.broken {
		return 0, api.Errorf(api.CodeUnavailable, "the template has ended")
	}
	if z.users > 1 {
		if z.usersLeft() == 0 {
			return 0, api.Errorf(api.CodeLimit, "the template has no users left")
		}
		asked.User = z.takeUsers(1)
	}
	return z.spawn(asked, fds)
}

// Close ends the template and waits for that. Its sentries go on.
func (t *Template) Close() {
	t.turn.wait()
	defer t.turn.give()
	t.failed.Store(true)
	if t.zygote != nil {
		t.zygote.end()
		t.zygote = nil
	}
	if os.Remove(t.process.logPath()); t.process.group != nil {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		_ = t.process.group.Delete(ctx) // a new daemon sweeps what is left
	}
}
