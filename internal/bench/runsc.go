package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/bench/cost"
	"ramet.dev/ramet/internal/bench/speed"
	"ramet.dev/ramet/internal/bench/stock"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/workload"
)

// stopTimeout bounds the removal of one container at the end of the run.
const stopTimeout = 30 * time.Second

// runsc runs containers with stock runsc in a directory of its own.
type runsc struct {
	path  string
	dir   string // has all files, and is in the arguments of all processes
	log   *os.File
	speed *speed.Meter
	pace  cost.Pace
	// namespace is the path of the network namespace of containers; empty for no network.
	namespace string
	// spent is the processor time of runsc commands that have ended.
	spent atomic.Int64

	mu  sync.Mutex
	ids []string // containers that may exist
}

// newRunsc makes the directory; close removes it.
func newRunsc(path string, p cost.Pace, s *speed.Meter) (*runsc, error) {
	dir, err := os.MkdirTemp("", "ramet-bench-")
	if err != nil {
		return nil, fmt.Errorf("make directory for runsc: %w", err)
	}
	r := &runsc{path: path, dir: dir, pace: p, speed: s}
	err = os.MkdirAll(filepath.Join(r.bundle(), "rootfs"), 0o755)
	if err == nil {
		r.log, err = os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make directory for runsc: %w", err), os.RemoveAll(dir))
	}
	return r, nil
}

func (r *runsc) bundle() string     { return filepath.Join(r.dir, "bundle") }
func (r *runsc) rootfs() string     { return filepath.Join(r.bundle(), "rootfs") }
func (r *runsc) state() string      { return filepath.Join(r.dir, "state") }
func (r *runsc) checkpoint() string { return filepath.Join(r.dir, "checkpoint") }

// writeBundle writes the configuration of a container: the same warm process as in our sandboxes,
// and little else.
func (r *runsc) writeBundle() error {
	for path, text := range workload.Files() {
		if err := os.WriteFile(filepath.Join(r.rootfs(), path), []byte(text), 0o755); err != nil {
			return fmt.Errorf("write bundle: %w", err)
		}
	}
	return stock.WriteConfig(r.bundle(), r.namespace, []string{"python3", workload.AgentPath, strconv.Itoa(workload.Port)})
}

// command returns a runsc command. Options differ from the defaults where that makes the comparison
// even, or easier for runsc: the same platform, written data stays in memory as with us, no network
// to the outside but in the cases of the network, and no control groups, which our sandboxes have.
func (r *runsc) command(ctx context.Context, args ...string) *exec.Cmd {
	network := "none"
	if r.namespace != "" {
		network = "sandbox"
	}
	args = append([]string{"--root=" + r.state(), "--platform=systrap", "--overlay2=root:memory", "--network=" + network, "--ignore-cgroups"}, args...)
	cmd := exec.CommandContext(ctx, r.path, args...)
	// A file and not a pipe: a detached container keeps it open.
	cmd.Stdout, cmd.Stderr = r.log, r.log
	return cmd
}

// run runs a runsc command to its end.
func (r *runsc) run(ctx context.Context, args ...string) error {
	return r.do(r.command(ctx, args...), args[0])
}

func (r *runsc) do(cmd *exec.Cmd, verb string) error {
	err := cmd.Run()
	if s := cmd.ProcessState; s != nil {
		r.spent.Add(int64(s.UserTime() + s.SystemTime()))
	}
	if err != nil {
		return fmt.Errorf("runsc %s: %w: %s", verb, err, r.lastLine())
	}
	return nil
}

func (r *runsc) lastLine() string {
	const most = 4 << 10
	fi, err := r.log.Stat()
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(r.log, max(0, fi.Size()-most), most))
	if err != nil {
		return ""
	}
	end := strings.TrimSpace(string(text))
	return end[strings.LastIndexByte(end, '\n')+1:]
}

// start starts or restores a container, which continues on its own.
func (r *runsc) start(ctx context.Context, id string, args ...string) error {
	r.mu.Lock()
	r.ids = append(r.ids, id)
	r.mu.Unlock()
	args = append(args, "--detach", "--bundle="+r.bundle(), id)
	return r.run(ctx, args...)
}

// firstCommand is what our children answer to show that they are ready.
var firstCommand = []string{"/bin/true"}

// exec runs a command in a container.
func (r *runsc) exec(ctx context.Context, id string, command []string) error {
	return r.run(ctx, append([]string{"exec", id}, command...)...)
}

// ask runs a program in the warm process of a container.
func (r *runsc) ask(ctx context.Context, id, program string) (string, error) {
	cmd := r.command(ctx, "exec", id, workload.AskPath, strconv.Itoa(workload.Port))
	var out strings.Builder
	cmd.Stdin, cmd.Stdout = strings.NewReader(program), &out
	cmd.WaitDelay = stopTimeout
	err := r.do(cmd, "exec")
	answer := strings.TrimSpace(out.String())
	if err != nil { // the last line of the answer says what Python raised
		return "", fmt.Errorf("%w: %s", err, answer[strings.LastIndexByte(answer, '\n')+1:])
	}
	return answer, nil
}

// await waits until the warm process of a container listens.
func (r *runsc) await(ctx context.Context, id string) error {
	script := fmt.Sprintf("until : </dev/tcp/127.0.0.1/%d; do sleep 0.05; done 2>/dev/null", workload.Port)
	return r.exec(ctx, id, []string{"/bin/bash", "-c", script})
}

// meter returns the meter of all containers.
func (r *runsc) meter() cost.Meter {
	return cost.Meter{Pace: r.pace, Speed: r.speed, Trees: func() (time.Duration, error) {
		roots, err := procfs.Find(r.dir)
		if err != nil {
			return 0, err
		}
		return procfs.TreeCPU(roots...)
	}}
}

// stop removes all containers except the first keep. It continues after a failure, and remembers
// the containers that it could not remove.
func (r *runsc) stop(ctx context.Context, keep int) error {
	r.mu.Lock()
	ids := slices.Clone(r.ids[min(keep, len(r.ids)):])
	r.mu.Unlock()
	errs := make([]error, len(ids))
	err := workload.Each(ctx, len(ids), func(ctx context.Context, i int) error {
		if errs[i] = r.run(ctx, "delete", "--force", ids[i]); errs[i] != nil {
			return nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ids = slices.DeleteFunc(r.ids, func(id string) bool { return id == ids[i] })
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// kill ends the processes of containers that could not be removed.
func (r *runsc) kill() error {
	left, err := procfs.Find(r.dir)
	for _, pid := range left {
		if e := syscall.Kill(pid, syscall.SIGKILL); e != nil && e != syscall.ESRCH {
			err = errors.Join(err, fmt.Errorf("kill process %d: %w", pid, e))
		}
	}
	return err
}

// close removes everything, also when ctx has ended.
func (r *runsc) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := errors.Join(r.stop(ctx, 0), r.kill())
	// For --network=none runsc keeps an empty network namespace mounted here.
	if e := unix.Unmount(filepath.Join(r.state(), "null-netns"), unix.MNT_DETACH); e != nil && !errors.Is(e, syscall.ENOENT) && !errors.Is(e, syscall.EINVAL) {
		err = errors.Join(err, fmt.Errorf("unmount namespace: %w", e))
	}
	if err = errors.Join(err, r.log.Close(), os.RemoveAll(r.dir)); err != nil {
		return fmt.Errorf("clean up after runsc: %w", err)
	}
	return nil
}
