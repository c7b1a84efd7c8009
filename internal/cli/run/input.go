package run

import (
	"errors"
	"io"
)

// sharedInput is standard input for a sequence of connections. Input that arrives between two
// connections goes to the next one.
type sharedInput struct{ pieces chan piece }

// piece is the result of one read.
type piece struct {
	data []byte
	err  error
}

// newSharedInput starts to read in. Its goroutine ends with in or with this process, because a read
// of a terminal cannot be cancelled.
func newSharedInput(in io.Reader) *sharedInput {
	s := &sharedInput{pieces: make(chan piece)}
	go func() {
		for {
			buf := make([]byte, inputSize)
			n, err := in.Read(buf)
			s.pieces <- piece{buf[:n], err}
			if err != nil {
				return
			}
		}
	}()
	return s
}

// inputSize is the size of a read in bytes.
const inputSize = 32 << 10

// turn is the reader of one connection. It ends when done is closed.
type turn struct {
	*sharedInput
	done <-chan struct{}
	rest piece
}

var errTurnOver = errors.New("the connection ended")

// Read implements io.Reader.
func (t *turn) Read(p []byte) (int, error) {
	if len(t.rest.data) == 0 && t.rest.err == nil {
		select {
		case t.rest = <-t.pieces:
		case <-t.done:
			return 0, errTurnOver
		}
	}
	n := copy(p, t.rest.data)
	if t.rest.data = t.rest.data[n:]; len(t.rest.data) > 0 {
		return n, nil
	}
	return n, t.rest.err
}
