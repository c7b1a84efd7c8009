package spawn

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/devices/memdev"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/pipefs"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/user"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/kernel/pipe"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/kern"
)

// Spawner makes processes of a sandbox as the host side wants them.
type Spawner struct {
	// Identity is the names, environment and limits of the sandbox. Operations that have
	// entered the gate read it, and operations that have locked the gate write it.
	Identity wire.Common

	k *kern.Kernel
}

// New returns the spawner of a guest.
func New(k *kern.Kernel, id wire.Common) *Spawner { return &Spawner{k: k, Identity: id} }

// LoadFailure says why a file that is there could not be executed. The kernel gives
// its reasons as text only.
func LoadFailure(filename string, err error) string {
	reason := strings.TrimPrefix(err.Error(), "failed to load "+filename+": ")
	if reason == linuxerr.ENOENT.Error() {
		return "the interpreter that the file asks for is not there"
	}
	return reason
}

// Args returns the arguments of a new process but for its descriptors and
// the file it runs.
func (s *Spawner) Args(ctx context.Context, mns *vfs.MountNamespace, req *wire.Exec) (*kernel.CreateProcessArgs, error) {
	creds, err := s.k.Credentials(ctx, mns, req.User)
	if err != nil {
		return nil, err
	}
	cwd := req.Cwd
	if cwd == "" {
		cwd = "/"
	}
	// The kernel takes whatever is there.
	if mode, err := s.k.ModeOf(ctx, mns, cwd); err != nil || mode.FileType() != linux.ModeDirectory {
		return nil, api.Invalid("cwd", "%q is not a directory in the sandbox", cwd)
	}
	env, err := user.MaybeAddExecUserHome(ctx, mns, creds.RealKUID, s.environ(req))
	if err != nil {
		return nil, fmt.Errorf("find home directory: %w", err)
	}
	group, err := s.commandGroup(ctx)
	if err != nil {
		return nil, err
	}
	return &kernel.CreateProcessArgs{
		Argv:                 req.Argv,
		Envv:                 env,
		WorkingDirectory:     cwd,
		Credentials:          s.Bounded(creds),
		Umask:                0o022,
		Limits:               s.Limits(),
		MaxSymlinkTraversals: linux.MaxSymlinkTraversals,
		UTSNamespace:         s.k.RootUTSNamespace(),
		IPCNamespace:         s.k.RootIPCNamespace(),
		PIDNamespace:         s.k.RootPIDNamespace(),
		MountNamespace:       mns,
		InitialCgroupV2:      group,
		CgroupNamespace:      s.k.GlobalInit().Leader().CgroupNamespace(), // for as long as init runs
		Origin:               kernel.OriginExec,
		ContainerID:          kern.NewMark(),
	}, nil
}

// Stdio are the sentry's ends of the standard streams of a process.
type Stdio struct{ Stdin, Stdout, Stderr *vfs.FileDescription }

// outputPipe is the size of the pipes for output, in bytes: how much is written before it
// is read.
const outputPipe = 256 << 10

// OpenStdio fills the standard descriptors of args with pipes, without stdin with /dev/null
// for the input. The user of the process owns the pipes, so that it can open /dev/stdout. The
// other ends go into std, after an error those that were made.
func (s *Spawner) OpenStdio(ctx context.Context, args *kernel.CreateProcessArgs, stdin bool, std *Stdio) error {
	mns, fds := args.MountNamespace, args.FDTable
	ctx = auth.ContextWithCredentials(ctx, args.Credentials)
	newPipe := func() (r, w *vfs.FileDescription, err error) {
		return pipefs.NewConnectedPipeFDs(ctx, s.k.PipeMount(), 0)
	}
	if stdin {
		r, w, err := newPipe()
		if err != nil {
			return fmt.Errorf("create stdin: %w", err)
		}
		std.Stdin = w
		if err := Place(ctx, fds, 0, r); err != nil {
			return fmt.Errorf("create stdin: %w", err)
		}
	} else {
		null, err := s.openNull(ctx, mns)
		if err != nil {
			return fmt.Errorf("open /dev/null: %w", err)
		}
		if err := Place(ctx, fds, 0, null); err != nil {
			return fmt.Errorf("create stdin: %w", err)
		}
	}
	for fd, end := range map[int32]**vfs.FileDescription{1: &std.Stdout, 2: &std.Stderr} {
		r, w, err := newPipe()
		if err != nil {
			return fmt.Errorf("create output pipe: %w", err)
		}
		*end = r
		_, _ = r.Impl().(*pipe.VFSPipeFD).SetPipeSize(outputPipe) // it is smaller else, which is no error
		if err := Place(ctx, fds, fd, w); err != nil {
			return fmt.Errorf("create output pipe: %w", err)
		}
	}
	return nil
}

// openNull opens /dev/null, or the device itself where the guest has removed the file, or
// covered it with a file that cannot be opened.
func (s *Spawner) openNull(ctx context.Context, mns *vfs.MountNamespace) (*vfs.FileDescription, error) {
	root := mns.Root(ctx)
	defer root.DecRef(ctx)
	opts := vfs.OpenOptions{Flags: linux.O_RDONLY | linux.O_NONBLOCK} // the guest may have put a fifo there
	file, err := s.k.VFS().OpenAt(ctx, s.k.RootCredentials(), kern.PathAt(root, "/dev/null"), &opts)
	if err == nil {
		return file, nil
	}
	null := s.k.VFS().NewAnonVirtualDentry("null")
	defer null.DecRef(ctx)
	return memdev.NewNullFD(ctx, null.Mount(), null.Dentry(), opts)
}

// Place makes file, which it takes over, the descriptor fd.
func Place(ctx context.Context, fds *kernel.FDTable, fd int32, file *vfs.FileDescription) error {
	defer file.DecRef(ctx) // the table has a reference of its own
	_, err := fds.NewFDAt(ctx, fd, file, kernel.FDFlags{})
	return err
}

// environ returns the environment of a command: defaults, the sandbox's, the
// command's own.
func (s *Spawner) environ(req *wire.Exec) []string {
	env := map[string]string{
		"PATH":             "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG":             "C.UTF-8",
		"HOSTNAME":         s.Identity.Hostname,
		"RAMET_SANDBOX_ID": s.Identity.ID,
		"RAMET_FORK_INDEX": strconv.Itoa(s.Identity.ForkIndex),
	}
	if req.Terminal != nil {
		env["TERM"] = "xterm-256color"
	}
	maps.Copy(env, s.Identity.Env)
	maps.Copy(env, req.Env)
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}
