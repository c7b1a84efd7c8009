package guest

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/hostsfile"
	"ramet.dev/ramet/internal/sentry/limitfs"
	"ramet.dev/ramet/internal/sentry/proc"
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

// Identify gives the running sandbox another identity: that of its parent, when it is
// promoted. Commands that run already keep their environment.
func (g *Guest) Identify(id wire.Common) error {
	g.Gate.Lock()
	defer g.Gate.Unlock()
	if g.Gate.Paused() {
		return gate.ErrPaused
	}
	old := *g.id()
	*g.id() = id
	unwritten, err := g.becomeSelf()
	if err == nil && len(unwritten) > 0 {
		err = errUnwritten(unwritten)
	}
	if err != nil {
		*g.id() = old
		_, _ = g.becomeSelf() // as far as possible: err is the error that counts
	}
	return err
}

// SetEnv replaces the environment of commands. Commands that run already keep theirs.
func (g *Guest) SetEnv(env map[string]string) {
	g.Gate.Lock()
	defer g.Gate.Unlock()
	g.id().Env = env
}

// becomeSelf writes the identity to where the guest sees it, but for files that the guest does
// not let be written: it returns those, with the reason. It must not keep itself from
// being forked, and least of all from being woken.
func (g *Guest) becomeSelf() (unwritten []string, err error) {
	ctx := g.k.SupervisorContext()
	files := identityFiles
	if text, err := readHosts(ctx, g.k, api.HostsFile); err == nil && hostsfile.Name(text) == g.id().Hostname {
		// It has been given its host name already. What the guest has done to the name and the files since stays.
		files = unnamedFiles
	} else {
		for _, t := range g.k.TaskSet().Root.Tasks() {
			if uts := t.UTSNamespace(); uts != nil {
				uts.SetHostName(ctx, g.id().Hostname)
			}
		}
		g.k.RootUTSNamespace().SetHostName(ctx, g.id().Hostname)
	}
	return g.writeIdentity(ctx, files)
}

const (
	idFile        = api.RunDir + "/id"
	forkIndexFile = api.RunDir + "/fork-index"
)

// The files that tell a sandbox who it is.
var (
	unnamedFiles  = []string{api.MachineIDFile, idFile, forkIndexFile}
	identityFiles = append([]string{api.HostnameFile, api.HostsFile}, unnamedFiles...)
)

func errUnwritten(files []string) error {
	return api.Errorf(api.CodeUnsupported, "the files that tell a sandbox who it is cannot be written: %s", strings.Join(files, ", "))
}

// writeIdentity writes the files that tell a sandbox who it is. It returns those that
// cannot be written, with the reason.
func (g *Guest) writeIdentity(ctx context.Context, files []string) (unwritten []string, err error) {
	limitfs.SetBootID(g.id().MachineID) // a sandbox that wakes keeps it, and a child has its own
	for _, name := range files {
		err := g.writeIdentityFile(ctx, name)
		if err != nil && path.Dir(name) == api.RunDir && g.k.MakeDirOf(ctx, path.Dir(api.RunDir)) == nil { // the image has no /run
			err = g.writeIdentityFile(ctx, name)
		}
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
	text := g.id().Hostname + "\n"
	switch name {
	case idFile:
		text = g.id().ID + "\n"
	case forkIndexFile:
		text = strconv.Itoa(g.id().ForkIndex) + "\n"
	case api.MachineIDFile:
		text = g.id().MachineID + "\n"
	case api.HostsFile:
		old, err := readHosts(ctx, g.k, name)
		if err != nil {
			return err
		}
		if text = hostsfile.With(old, g.id().Hostname); text == old {
			return nil // as of a sandbox that wakes
		}
	}
	return g.k.WriteFile(ctx, name, text)
}

// runHooks runs the fork hooks and returns the outcome of each. A hook that
// fails does not stop the others: the caller decides.
func (g *Guest) runHooks() ([]api.HookResult, error) {
	ctx := g.k.SupervisorContext()
	names, err := g.k.ListDir(ctx, hooksDir)
	if err != nil || len(names) == 0 {
		return nil, nil // no directory, no hooks
	}
	slices.Sort(names)
	var results []api.HookResult
	for _, name := range names {
		if is, err := g.Files.Executable(path.Join(hooksDir, name)); err != nil {
			return nil, err
		} else if !is {
			continue
		}
		out := &limitedBuffer{max: hookOutput}
		exited, err := g.Processes.Exec(&wire.Exec{
			Argv:      []string{path.Join(hooksDir, name)},
			TimeoutMS: hookTimeoutMS,
		}, proc.ExecIO{Stdout: out, Stderr: out})
		if err != nil {
			return nil, fmt.Errorf("run fork hook %s: %w", name, err)
		}
		results = append(results, api.HookResult{
			Name: name, ExitCode: exited.Code, TimedOut: exited.TimedOut, Output: out.String(), DurationMS: exited.DurationMS,
		})
	}
	return results, nil
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

// String returns the bytes that were kept.
func (b *limitedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
