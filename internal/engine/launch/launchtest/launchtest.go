// Package launchtest has sentries for tests, which are processes that do nothing: the test
// answers in their place.
//
// The package must never be linked with the product.
package launchtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/observe/procfs"
)

// fakes counts fake sentries: each has a key of its own.
var fakes atomic.Int64

// New adopts a process that does nothing as a sentry. The test answers in
// its place.
func New(t *testing.T, answers func(process *os.Process, self *launch.Sentry, call *wire.Call) (any, error)) *launch.Sentry {
	t.Helper()
	return NewIn(t, exec.Command("sleep", "infinity"), answers)
}

// NewIn is New with a process of the test, which it starts.
func NewIn(t *testing.T, process *exec.Cmd, answers func(process *os.Process, self *launch.Sentry, call *wire.Call) (any, error)) *launch.Sentry {
	t.Helper()
	ctx, dir, key := context.Background(), t.TempDir(), fmt.Sprintf("pool_%016x", fakes.Add(1))
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	// What the process has started, and the process itself if it was not adopted, end with the test.
	t.Cleanup(func() {
		_ = syscall.Kill(-process.Process.Pid, syscall.SIGKILL) // there may be none
		_ = process.Wait()                                      // says that it was killed
	})
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, key+".sock"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	memory, err := launch.NewFile("memory")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	fd := int(memory.Fd())
	adopted := make(chan *launch.Sentry, 1)
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			answer(wire.NewConn(c), fd, func(call *wire.Call) (any, error) {
				self := <-adopted
				adopted <- self
				return answers(process.Process, self, call)
			})
		}
	}()
	launcher, err := launch.New(ctx, launch.Config{Executable: "/bin/true", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(launcher.Close)
	start, err := procfs.StartTime(process.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	s, _, _, err := launcher.Adopt(ctx, key, process.Process.Pid, start)
	if err != nil {
		t.Fatal(err)
	}
	adopted <- s
	t.Cleanup(s.Kill)
	return s
}

// answer answers one call.
func answer(c *wire.Conn, memory int, answers func(*wire.Call) (any, error)) {
	defer c.Finish()
	p, err := c.ReceiveCall()
	if err != nil {
		return
	}
	defer p.Close()
	var call wire.Call
	if json.Unmarshal(p.Body, &call) == nil && call.Op == wire.OpAdopt {
		_ = c.SendJSON(wire.TypeReply, wire.Adopted{}, memory, memory) // the peer's errors tell
		return
	}
	reply, err := answers(&call)
	if err != nil {
		_ = c.Fail(err)
		return
	}
	_ = c.SendJSON(wire.TypeReply, reply)
}
