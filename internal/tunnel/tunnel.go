package tunnel

import (
	"io"
	"net"
	"sync"
	"time"

	"ramet.dev/ramet/internal/peer"
)

// Linger is how long a server may take to answer a client that will not hear it.
const Linger = time.Minute

// Half is a connection whose directions end by themselves.
type Half interface {
	net.Conn
	CloseWrite() error
}

// halfCloser is implemented by the connections of clients.
type halfCloser interface{ CloseWrite() error }

// Join passes early, and then the bytes from client, to port, and the bytes from port to
// client, until both directions have ended or one side is broken. A client that is gone is
// waited for as long as linger says. Join closes what is broken, and the caller closes both
// connections in the end.
func Join(client net.Conn, early []byte, port Half, linger time.Duration) {
	peer.KeepAlive(client)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := port.Write(early)
		if err == nil {
			_, err = copyAll(port, client)
		}
		if err == nil {
			err = port.CloseWrite()
		}
		if err != nil { // one side is broken: the other must not wait
			client.Close()
			port.Close()
		}
	})
	// A client that only ends its direction waits for an answer. A reader cannot tell it
	// from a client that is gone.
	defer peer.WhenGone(client, linger, func() { port.Close() })()
	_, err := copyAll(client, port)
	half, ok := client.(halfCloser)
	if err == nil && ok {
		err = half.CloseWrite()
	}
	if err != nil || !ok {
		peer.Reset(client)
		port.Close()
	}
	wg.Wait()
}

// bufferSize is the size of a copy, in bytes.
const bufferSize = 64 << 10

// copyAll copies with a buffer of bufferSize bytes.
func copyAll(to io.Writer, from io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, bufferSize))
}
