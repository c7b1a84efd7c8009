package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// chatter is a connection that two threads talk over all the time, each in turn
// with the next number: whatever stops the world meets it in the middle of
// something.
type chatter struct {
	heap
	last   atomic.Uint64
	failed atomic.Pointer[error]
}

func newChatter() (item, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	b, err := l.Accept()
	if err != nil {
		return nil, err
	}
	c := &chatter{}
	go c.talk(a, 1)
	go c.talk(b, 0)
	return c, nil
}

// talk sends next if it is odd, and then answers each number with the one
// behind it.
func (c *chatter) talk(conn net.Conn, next uint64) {
	err := func() error {
		for {
			if next > 0 {
				if _, err := conn.Write(binary.LittleEndian.AppendUint64(nil, next)); err != nil {
					return err
				}
				c.last.Store(next)
			}
			var b [8]byte
			if _, err := io.ReadFull(conn, b[:]); err != nil {
				return err
			}
			got := binary.LittleEndian.Uint64(b[:])
			if next > 0 && got != next+1 {
				return fmt.Errorf("got %d after %d", got, next)
			}
			next = got + 1
			time.Sleep(2 * time.Millisecond) // leave the processor to others
		}
	}()
	c.failed.Store(&err)
}

func (c *chatter) get() (string, error) {
	before := c.last.Load()
	until := time.Now().Add(patience)
	for c.last.Load() < before+4 {
		if err := c.failed.Load(); err != nil {
			return "", fmt.Errorf("conversation ended: %w", *err)
		}
		if time.Now().After(until) {
			return "", fmt.Errorf("no answer within %v", patience)
		}
		time.Sleep(time.Millisecond)
	}
	return c.heap.get()
}
