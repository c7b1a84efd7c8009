package outside

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Server serves connections of sandboxes. The first byte of a connection says what it is for:
// d sends until the client closes, u receives to the end and answers with the number of bytes,
// and e returns what it receives.
type Server struct {
	listener net.Listener
	tasks    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

// answerTimeout bounds the answer to an upload.
const answerTimeout = 30 * time.Second

// blockSize is the size of a read or write of the server.
const blockSize = 256 << 10

// listen listens at a free port of an address.
func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for sandboxes: %w", err)
	}
	return l, nil
}

// listenIn listens in the network namespace at path. A socket stays where it was made.
func listenIn(path, address string) (l net.Listener, err error) {
	var task sync.WaitGroup
	task.Go(func() {
		// The thread ends with this goroutine, because it is never unlocked.
		runtime.LockOSThread()
		var namespace *os.File
		if namespace, err = os.Open(path); err != nil {
			err = fmt.Errorf("open network namespace: %w", err)
			return
		}
		defer namespace.Close()
		if err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("enter network namespace: %w", err)
			return
		}
		l, err = listen(address)
	})
	task.Wait()
	return l, err
}

// Serve serves at a free port of an address in the network namespace at path, or in that of
// this process if path is empty.
func Serve(path, address string) (*Server, error) {
	open := listen
	if path != "" {
		open = func(address string) (net.Listener, error) { return listenIn(path, address) }
	}
	l, err := open(address)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: l, conns: map[net.Conn]bool{}}
	s.tasks.Go(func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // such as no descriptors: the client sees its end
				continue
			}
			if s.add(conn) {
				s.tasks.Go(func() { s.serve(conn) })
			}
		}
	})
	return s, nil
}

// Port returns the port that it serves.
func (s *Server) Port() uint16 { return uint16(s.listener.Addr().(*net.TCPAddr).Port) }

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.tasks.Wait()
	return err
}

// add records a connection, or closes it if the server is closed.
func (s *Server) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *Server) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
	}()
	block := make([]byte, blockSize)
	if _, err := io.ReadFull(conn, block[:1]); err != nil {
		return
	}
	switch block[0] {
	case 'd':
		for {
			if _, err := conn.Write(block); err != nil {
				return
			}
		}
	case 'u':
		total := 0
		for {
			n, err := conn.Read(block)
			total += n
			if err == io.EOF {
				_ = conn.SetWriteDeadline(time.Now().Add(answerTimeout))
				_, _ = io.WriteString(conn, strconv.Itoa(total)+"\n") // the client misses it and says so
				return
			}
			if err != nil {
				return
			}
		}
	case 'e':
		_, _ = io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{conn}, block) // ends with the client
	}
}
