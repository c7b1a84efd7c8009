package relay

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// pipeSize is how many bytes a direction moves at once. A socket pair has room for
	// about as much.
	pipeSize = 256 << 10
	// keptPipes is how many pipes are kept that nobody uses.
	keptPipes = 64
)

// pipe is an empty pipe.
type pipe struct{ r, w int }

// pipes are those that nobody uses. It is of the process, as pipes are: flows of all sandboxes
// borrow from it, and an empty pipe has nothing of them.
var pipes = make(chan *pipe, keptPipes)

func borrowPipe() (*pipe, error) {
	select {
	case p := <-pipes:
		return p, nil
	default:
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	// Where the user may have no more memory in pipes the pipe is smaller, and works.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return &pipe{fds[0], fds[1]}, nil
}

// giveBack takes a pipe that is empty.
func (p *pipe) giveBack() {
	select {
	case pipes <- p:
	default:
		p.close()
	}
}

// close discards a pipe, with what is in it.
func (p *pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}
