package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// childArg is the first argument of a probe child. It is not a name that a
	// person would give a subcommand.
	childArg = "__doctor-probe"
	// childTimeout ends a probe that hangs, say in a broken ptrace.
	childTimeout = 10 * time.Second
)

// selfExe works even if the executable was replaced or is out of reach.
const selfExe = "/proc/self/exe"

// childRequest names a probe and the namespaces in which its child runs.
type childRequest struct {
	probe string
	// cloneflags, if there are any, must include CLONE_NEWUSER.
	cloneflags uintptr
}

// childReply is what a probe child writes to its standard output.
type childReply struct {
	// Error is empty if the probe succeeded.
	Error string `json:"error,omitempty"`
	// Namespaces are the links in /proc/self/ns by name.
	Namespaces map[string]string `json:"namespaces,omitempty"`
}

// errStart is the error of a child that could not be started.
var errStart = errors.New("start child")

// childProbes run in a process of their own, which they may damage.
var childProbes = map[string]func() (childReply, error){
	"namespaces":   childNamespaces,
	"mounts":       childMounts,
	"no_new_privs": childNoNewPrivs,
	"seccomp":      childSeccomp,
	"ptrace":       childPtrace,
	"wait":         childWait,
}

// ChildMain runs a probe if args, the program's os.Args, are those of a probe child, and reports
// whether they are. Then main must return at once.
func ChildMain(args []string) bool {
	if len(args) != 3 || args[1] != childArg {
		return false
	}
	reply, err := childReply{}, fmt.Errorf("no probe %q", args[2])
	if run := childProbes[args[2]]; run != nil {
		reply, err = run()
	}
	if err != nil {
		reply.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(reply); err != nil {
		fmt.Fprintln(os.Stderr, err) // the parent finds no reply and shows this
	}
	return true
}

// runChild runs a probe in a child and waits for it. A failed probe is an error.
func runChild(ctx context.Context, request childRequest) (childReply, error) {
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, selfExe, childArg, request.probe)
	cmd.SysProcAttr = childAttr(request.cloneflags)
	cmd.WaitDelay = time.Second // a grandchild may hold the pipes
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return childReply{}, fmt.Errorf("%w: %w", errStart, err)
	}
	waitErr := cmd.Wait()
	var reply childReply
	if err := json.Unmarshal(stdout.Bytes(), &reply); err != nil {
		return childReply{}, fmt.Errorf("probe ended without a reply: %w", errors.Join(ctx.Err(), waitErr, firstLine(&stderr)))
	}
	if reply.Error != "" {
		return reply, errors.New(reply.Error)
	}
	return reply, nil
}

// childAttr maps the calling user to root of the new user namespace, as for sandboxes.
func childAttr(cloneflags uintptr) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: cloneflags}
	if cloneflags&syscall.CLONE_NEWUSER != 0 {
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

func firstLine(b *bytes.Buffer) error {
	line, _, _ := bytes.Cut(bytes.TrimSpace(b.Bytes()), []byte("\n"))
	if len(line) == 0 {
		return nil
	}
	return errors.New(string(line))
}

// childWait lives until its standard input ends.
func childWait() (childReply, error) {
	_, err := io.Copy(io.Discard, os.Stdin)
	return childReply{}, err
}
