package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// workerProcess is a child process that answers lines on pipes.
type workerProcess struct {
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Reader
}

func startWorker(extra ...*os.File) (*workerProcess, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	w := &workerProcess{cmd: exec.Command("/proc/self/exe", "worker"), in: inW, out: bufio.NewReader(outR)}
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = inR, outW, os.Stderr
	w.cmd.ExtraFiles = extra
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	inR.Close()
	outW.Close()
	return w, nil
}

func (w *workerProcess) call(line string) (string, error) {
	if _, err := fmt.Fprintln(w.in, line); err != nil {
		return "", err
	}
	answer, err := w.out.ReadString('\n')
	return strings.TrimSuffix(answer, "\n"), err
}

// worker serves: "set V", "get", "shared" (the text in descriptor 3), and
// "parent" (its process id and its parent's).
func worker([]string) (int, error) {
	value := ""
	var shared mapped
	if m, err := mapFile(3, unix.MAP_SHARED); err == nil {
		shared = m
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		op, arg, _ := strings.Cut(lines.Text(), " ")
		answer := ""
		switch op {
		case "set":
			value = arg
		case "get":
			answer = value
		case "shared":
			answer = cstring(shared.page)
		case "parent":
			answer = fmt.Sprint(os.Getpid(), os.Getppid())
		}
		if _, err := fmt.Println(answer); err != nil {
			return 1, err
		}
	}
	return 0, lines.Err()
}

// child is a child process with the value in its memory.
type child struct{ *workerProcess }

func newChild() (item, error) {
	w, err := startWorker()
	return child{w}, err
}

func (c child) set(v string) error {
	_, err := c.call("set " + v)
	return err
}

func (c child) get() (string, error) {
	ids, err := c.call("parent")
	if err != nil {
		return "", err
	}
	if want := fmt.Sprint(c.cmd.Process.Pid, os.Getpid()); ids != want {
		return "", fmt.Errorf("process and parent are %s, not %s", ids, want)
	}
	return c.call("get")
}

// stopped is a child process that was stopped by a signal. It is let run for
// each answer, so that one that ran all the time shows.
type stopped struct{ *workerProcess }

func newStopped() (item, error) {
	w, err := startWorker()
	if err != nil {
		return nil, err
	}
	if _, err := w.call("get"); err != nil { // it has started
		return nil, err
	}
	s := stopped{w}
	return s, s.stop()
}

func (s stopped) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return s.awaitState('T')
}

// awaitState waits for the state of proc_pid_stat(5).
func (s stopped) awaitState(want byte) error {
	until := time.Now().Add(patience)
	for {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
		if err != nil {
			return err
		}
		if state := b[strings.LastIndexByte(string(b), ')')+2]; state == want {
			return nil
		} else if time.Now().After(until) {
			return fmt.Errorf("process is in state %c, not %c", state, want)
		}
		time.Sleep(time.Millisecond)
	}
}

func (s stopped) ask(line string) (string, error) {
	if err := s.awaitState('T'); err != nil {
		return "", err
	}
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return "", err
	}
	v, err := s.call(line)
	if err != nil {
		return "", err
	}
	return v, s.stop()
}

func (s stopped) set(v string) error {
	_, err := s.ask("set " + v)
	return err
}

func (s stopped) get() (string, error) { return s.ask("get") }

// netlinks opens and closes sockets of netlink for good, in several threads. It listens at a port, and has a child
// that has ended and is never waited for.
func netlinks(args []string) (int, error) {
	c := exec.Command("/proc/self/exe", "true")
	if err := c.Start(); err != nil {
		return 1, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+args[0])
	if err != nil {
		return 1, err
	}
	defer l.Close()
	failed := make(chan error)
	for range 4 {
		go func() {
			for {
				fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0)
				if err == nil {
					err = unix.Close(fd)
				}
				if err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	fmt.Println("open")
	return 1, <-failed
}
