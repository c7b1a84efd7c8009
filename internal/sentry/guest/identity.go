package guest

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

const (
	// hooksDir holds executables that run in every child of a fork, in the
	// order of their names, before the fork returns. What is no executable file is
	// passed over, as run-parts(8) does.
	hooksDir = "/etc/ramet/fork.d"
	// hookTimeoutMS bounds each hook.
	hookTimeoutMS = 10_000
	// hookOutput is how much of a hook's output is reported, in bytes.
	hookOutput = 4 << 10
)

// Identify makes the running sandbox another one: its parent, when it is
// promoted. Commands that run already keep their environment.
func (g *Guest) Identify(id wire.Common) error {
	g.ops.Lock()
	defer g.ops.Unlock()
	if g.paused {
		return errPaused
	}
	old := g.id
	g.id = id
	unwritten, err := g.becomeSelf()
	if err == nil && len(unwritten) > 0 {
		err = errUnwritten(unwritten)
	}
	if err != nil {
		g.id = old
		_, _ = g.becomeSelf() // as far as possible: err says what is wrong
	}
	return err
}

// becomeSelf writes g.id to where the guest sees it, but for files that the guest does
// not let be written: it returns those, with the reason. It must not keep itself from
// being forked, and least of all from being woken.
func (g *Guest) becomeSelf() (unwritten []string, err error) {
	ctx := g.rootContext()
	for _, t := range g.k.TaskSet().Root.Tasks() {
		if uts := t.UTSNamespace(); uts != nil {
			uts.SetHostName(ctx, g.id.Hostname)
		}
	}
	g.k.RootUTSNamespace().SetHostName(ctx, g.id.Hostname)
	return g.writeIdentity(ctx)
}

func errUnwritten(files []string) error {
	return api.Errorf(api.CodeUnsupported, "the files that tell a sandbox who it is cannot be written: %s", strings.Join(files, ", "))
}

// writeIdentity writes the files that tell a sandbox who it is. It returns those that
// cannot be written, with the reason.
func (g *Guest) writeIdentity(ctx context.Context) (unwritten []string, err error) {
	for _, name := range api.IdentityFiles() {
		err := g.writeIdentityFile(ctx, name)
		if linuxerr.Equals(linuxerr.ENOSPC, err) {
			return nil, api.Errorf(api.CodeNoSpace, "write the sandbox's %s: the disk is full, or its limit reached", name)
		}
		if err != nil {
			unwritten = append(unwritten, name+": "+err.Error())
		}
	}
	return unwritten, nil
}

func (g *Guest) writeIdentityFile(ctx context.Context, name string) error {
	text := g.id.Hostname + "\n"
	switch name {
	case api.MachineIDFile:
		text = g.id.MachineID + "\n"
	case api.HostsFile:
		old, err := g.readHosts(ctx, name)
		if err != nil {
			return err
		}
		if text = hostsOf(old, g.id.Hostname); text == old {
			return nil // as of a sandbox that wakes
		}
	}
	return g.writeFile(ctx, name, text)
}

func (g *Guest) writeFile(ctx context.Context, name, text string) error {
	root, err := g.root(ctx)
	if err != nil {
		return err
	}
	defer root.DecRef(ctx)
	creds := auth.NewRootCredentials(g.k.RootUserNamespace())
	if err := makeDir(ctx, g.k, creds, root, path.Dir(name), 0o755); err != nil {
		return err
	}
	// It may be a pipe, and nothing would end the wait for its reader.
	opts := &vfs.OpenOptions{Flags: linux.O_WRONLY | linux.O_CREAT | linux.O_NONBLOCK, Mode: 0o644}
	file, err := g.k.VFS().OpenAt(ctx, creds, pathAt(root, name), opts)
	if err != nil && g.k.VFS().UnlinkAt(ctx, creds, at(root, name)) == nil { // a link to nowhere, or such a pipe
		file, err = g.k.VFS().OpenAt(ctx, creds, pathAt(root, name), opts)
	}
	if err != nil {
		return err
	}
	defer file.DecRef(ctx)
	// What is there is overwritten in place, which the sandbox's limit does not
	// refuse: who fills the disk can still be forked.
	n, err := file.Write(ctx, usermem.BytesIOSequence([]byte(text)), vfs.WriteOptions{})
	if err == nil && int(n) < len(text) {
		err = linuxerr.ENOSPC
	}
	if err != nil {
		return err
	}
	err = file.SetStat(ctx, vfs.SetStatOptions{Stat: linux.Statx{Mask: linux.STATX_SIZE, Size: uint64(len(text))}})
	if linuxerr.Equals(linuxerr.EINVAL, err) {
		return nil // no regular file
	}
	return err
}

// runHooks runs the fork hooks and returns the outcome of each. A hook that
// fails does not stop the others: the caller decides.
func (g *Guest) runHooks() ([]api.HookResult, error) {
	ctx := g.rootContext()
	names, err := g.listDir(ctx, hooksDir)
	if err != nil || len(names) == 0 {
		return nil, nil // no directory, no hooks
	}
	slices.Sort(names)
	o, err := g.fileOp("")
	if err != nil {
		return nil, err
	}
	var results []api.HookResult
	for _, name := range names {
		if !o.mayBeHook(path.Join(hooksDir, name)) {
			continue
		}
		out := &limitedBuffer{max: hookOutput}
		exited, err := g.Exec(&wire.Exec{
			Argv:      []string{path.Join(hooksDir, name)},
			TimeoutMS: hookTimeoutMS,
		}, ExecIO{Stdout: out, Stderr: out})
		if err != nil {
			return nil, fmt.Errorf("run fork hook %s: %w", name, err)
		}
		results = append(results, api.HookResult{
			Name: name, ExitCode: exited.Code, TimedOut: exited.TimedOut, Output: out.String(), DurationMS: exited.DurationMS,
		})
	}
	return results, nil
}

// mayBeHook reports whether name is an executable file. A link to nowhere may be meant
// to be one: running it says what is wrong.
func (o *fileOp) mayBeHook(name string) (is bool) {
	err := o.do(func(root vfs.VirtualDentry) error {
		st, err := o.stat(root, name, true)
		is = typeOf(st.Mode) == typeFile && st.Mode&0o111 != 0
		return err
	})
	return is || err != nil
}

// limitedBuffer keeps the first max bytes. Two pumps write to it.
type limitedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
	max int
}

// Write implements io.Writer. It never fails.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Write(p[:min(len(p), b.max-b.buf.Len())])
	return len(p), nil
}

// String returns what was kept.
func (b *limitedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
