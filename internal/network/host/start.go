package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/hostuser"
	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/network/process"
	"ramet.dev/ramet/internal/observe/procfs"
)

const (
	// helloTimeout is how long a gateway may take to answer that is there.
	helloTimeout = 5 * time.Second
	// startTimeout is how long one may take to start.
	startTimeout = 20 * time.Second
	// endTimeout is how long one may take to end when it is asked to.
	endTimeout = 5 * time.Second
)

func socket(dir string) string   { return filepath.Join(dir, "gateway.sock") }
func lockFile(dir string) string { return filepath.Join(dir, "gateway.lock") }
func logFile(dir string) string  { return filepath.Join(dir, "gateway.log") }

// exists reports whether a gateway was ever started.
func exists(dir string) bool {
	_, err := os.Stat(lockFile(dir))
	return err == nil
}

// alive reports whether a process holds the lock.
func alive(dir string) bool {
	f, err := os.OpenFile(lockFile(dir), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return tryLock(f) != nil
}

// errHeld says that a gateway holds the lock.
var errHeld = errors.New("a gateway holds the lock")

func tryLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EWOULDBLOCK:
			return errHeld
		}
		return err
	}
}

// found is a gateway that answers.
type found struct {
	hello control.Hello
	fresh bool            // it was started, and knows no sandbox
	ended <-chan struct{} // closed at its end, or at that of life
}

// find returns the gateway that is there, if it answers and is of this build, or starts one. One that
// does not fit is ended first. life is how long the gateway is watched.
func find(ctx, life context.Context, cfg Config, client *control.Client) (f found, err error) {
	lock, err := os.OpenFile(lockFile(cfg.Dir), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return f, fmt.Errorf("open lock of the gateway: %w", err)
	}
	defer lock.Close()
	if err = tryLock(lock); errors.Is(err, errHeld) {
		asked, cancel := context.WithTimeout(ctx, helloTimeout)
		f.hello, err = client.Hello(asked)
		cancel()
		if err == nil && f.hello.Build == cfg.Build {
			if f.ended, err = client.Watch(life); err == nil {
				return f, nil
			}
		}
		if ctx.Err() != nil {
			return f, context.Cause(ctx)
		}
		cfg.Log.Warn("the gateway is replaced", "build", f.hello.Build, "error", err)
		if err == nil {
			err = end(ctx, lock, client)
		}
		if err != nil {
			err = kill(ctx, lock)
		}
	}
	if err != nil {
		return f, fmt.Errorf("lock the gateway: %w", err)
	}
	f.fresh = true
	if err = start(ctx, cfg, lock); err != nil {
		return f, err
	}
	if f.hello, err = client.Hello(ctx); err != nil {
		return f, err
	}
	f.ended, err = client.Watch(life)
	return f, err
}

// end asks the gateway that holds the lock to end, and takes it.
func end(ctx context.Context, lock *os.File, client *control.Client) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := client.End(ctx); err != nil {
		return err
	}
	return await(ctx, lock)
}

// kill ends the process that holds the lock, and takes it. Nothing else is ended that has its number.
func kill(ctx context.Context, lock *os.File) error {
	owner, err := process.ReadOwner(lock)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(owner.PID, 0)
	if err == nil {
		defer unix.Close(fd)
		if st, serr := procfs.StartTime(owner.PID); serr == nil && st == owner.StartTime {
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", owner.PID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	return await(ctx, lock)
}

// await takes the lock when its holder has ended. The system call cannot be given up, so it is tried.
func await(ctx context.Context, lock *os.File) error {
	for {
		err := tryLock(lock)
		if !errors.Is(err, errHeld) {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return errHeld
		}
	}
}

// start starts a gateway, which inherits the lock, and waits until it serves.
func start(ctx context.Context, cfg Config, lock *os.File) error {
	arg := process.Config{
		Socket: socket(cfg.Dir), Build: cfg.Build, ResolvConf: cfg.ResolvConf, Hosts: cfg.Hosts, Grace: cfg.Grace,
		Held: cfg.Held, HTTPSProxy: cfg.HTTPSProxy, NoProxy: cfg.NoProxy,
	}
	if cfg.Bundle != "" {
		roots, err := readBundle(cfg.Bundle)
		if err != nil {
			cfg.Log.Warn("the gateway trusts no server whose requests it treats", "error", err)
		}
		arg.Roots = &roots
	}
	arg.User, arg.NoUser = chooseUser()
	files := []*os.File{process.LockFD - 3: lock, process.HeldFD - 3: nil}
	held, err := openHeld(cfg.HeldDir, arg.User)
	if err != nil {
		arg.NoHold = err.Error()
	} else {
		defer held.Close()
		files[process.HeldFD-3] = held
	}
	config, err := writeConfig(&arg)
	if err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	defer config.Close()
	log, err := os.OpenFile(logFile(cfg.Dir), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("open log of the gateway: %w", err)
	}
	defer log.Close()
	ready, readyWrite, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	defer ready.Close()
	files[process.ReadyFD-3], files[process.ConfigFD-3] = readyWrite, config
	cmd := exec.Cmd{
		Path: cfg.Executable, Args: []string{"ramet-gateway", process.Word, cfg.Build}, Dir: "/",
		// Nothing of the daemon's environment. The runtime looks at the limits of its control group
		// once, and not each second.
		Env:        []string{"GODEBUG=updatemaxprocs=0", "GOGC=50"},
		Stdout:     log,
		Stderr:     log,
		ExtraFiles: files,
		SysProcAttr: &syscall.SysProcAttr{
			Setsid: true, // it outlives the daemon, and its terminal
		},
	}
	err = cmd.Start()
	readyWrite.Close()
	if err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	// The gateway may outlive this process, which does not wait for this goroutine.
	go func() { _ = cmd.Wait() }()
	if err := ready.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var answer process.Ready
	b, err := io.ReadAll(io.LimitReader(ready, 1<<16))
	switch {
	case err == nil && len(b) == 0:
		err = errors.New("it ended while it started" + tail(logFile(cfg.Dir)))
	case err == nil:
		if err = json.Unmarshal(b, &answer); err == nil && answer.Error != "" {
			err = errors.New(answer.Error)
		}
	}
	if err != nil {
		_ = cmd.Process.Kill() // it may have ended
		return api.Errorf(api.CodeUnavailable, "start the gateway: %w", err)
	}
	return nil
}

// readBundle reads authorities, in PEM.
func readBundle(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read certificates of the host: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, process.MaxRoots+1))
	if err == nil && len(text) > process.MaxRoots {
		err = fmt.Errorf("%s has more than %d bytes", path, process.MaxRoots)
	}
	if err != nil {
		return "", fmt.Errorf("read certificates of the host: %w", err)
	}
	return string(text), nil
}

// writeConfig returns the configuration as a file in memory: it may have a password in it.
func writeConfig(arg *process.Config) (*os.File, error) {
	text, err := json.Marshal(arg)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("configuration", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "configuration")
	if _, err := f.Write(text); err != nil {
		f.Close()
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return f, nil
}

// openHeld opens the directory of held requests, and makes it if there is none. It and its files are
// given to the user of the gateway, who is another one at each start; 0 stays who has them. What is no
// file of the gateway's making is left as it is: one that was taken over may have put it there.
func openHeld(path string, user int) (*os.File, error) {
	if path == "" {
		return nil, errors.New("the daemon has no directory for them")
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of held requests: %w", err)
	}
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open directory of held requests: %w", err)
	}
	if user == 0 {
		return dir, nil
	}
	if err := giveHeld(dir, user); err != nil {
		dir.Close()
		return nil, fmt.Errorf("give held requests to the user of the gateway: %w", err)
	}
	return dir, nil
}

// giveHeld makes a directory and its files those of a user.
func giveHeld(dir *os.File, user int) error {
	if err := dir.Chown(user, user); err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		var st unix.Stat_t
		fd := int(dir.Fd())
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
			continue
		}
		if err := unix.Fchownat(fd, name, user, user, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// chooseUser returns a user of the host that nobody is, or why the gateway stays this one.
func chooseUser() (user int, reason string) {
	if os.Geteuid() != 0 {
		return 0, "the daemon is not root's: the gateway is the same user"
	}
	if !hostuser.MayBecome() {
		return 0, "root here may not become another user (no CAP_SETUID, CAP_SETGID): the gateway is the same user"
	}
	first, err := hostuser.FreeRange("/")
	if err != nil {
		return 0, err.Error()
	}
	return first, ""
}

// maxTail is how much of a log is quoted.
const maxTail = 2 << 10

// tail quotes the end of a log.
func tail(path string) string {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return "; its log cannot be read: " + err.Error()
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	b, err := io.ReadAll(io.NewSectionReader(f, max(0, end-maxTail), maxTail))
	if err != nil || len(b) == 0 {
		return ""
	}
	return "; its log says:\n" + string(b)
}
