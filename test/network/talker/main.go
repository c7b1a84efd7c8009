package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// stream carries messages in both directions.
type stream interface {
	send(b []byte) error
	receive() ([]byte, error)
	close()
}

// opener opens streams to a server.
type opener func(ctx context.Context) (stream, error)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: talker websocket|http2|grpc|poll URL")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(kind, url string) error {
	switch kind {
	case "websocket":
		return talk(func(ctx context.Context) (stream, error) { return openWebSocket(ctx, url) })
	case "http2":
		return talk(newHTTP2(url))
	case "grpc":
		open, err := newGRPC(url)
		if err != nil {
			return err
		}
		return talk(open)
	case "poll":
		return poll(url)
	}
	return fmt.Errorf("nobody speaks %q", kind)
}

// talk exchanges messages until a line of input comes.
func talk(open opener) error {
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // its end is one of the conversation, too
	}()
	for {
		err := exchange(open, stop)
		if err == nil {
			fmt.Println("whole")
			return nil
		}
		if !wasReset() {
			return err
		}
		fmt.Println("reset")
	}
}

const (
	// pace is the time between messages, and enough of them make a conversation.
	pace   = 10 * time.Millisecond
	enough = 20
	// end begins the last message, which says how many came before.
	end = "end "
)

// message returns the i-th message.
func message(i int) []byte {
	head := strconv.Itoa(i) + " "
	return append([]byte(head), bytes.Repeat([]byte{byte('a' + i%26)}, i*997%8192)...)
}

// exchange sends messages on a new stream until stop is closed, and returns nil when all were answered.
func exchange(open opener, stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	failed := make(chan error, 64) // what became of messages that are not answered
	go func() {
		for i := 0; ; i++ {
			m, last := message(i), false
			select {
			case <-stop:
				m, last = []byte(end+strconv.Itoa(i)), true
			case <-time.After(pace):
			}
			err := s.send(m)
			if failed <- err; last || err != nil {
				return
			}
		}
	}()
	sent := 0 // and perhaps more
	for i := 0; ; i++ {
		got, err := s.receive()
		if err != nil {
			err = fmt.Errorf("receive message %d: %w", i, err)
			for {
				select {
				case serr := <-failed:
					if serr != nil {
						return errors.Join(err, serr)
					}
				default:
					return err
				}
			}
		}
		if err := <-failed; err != nil {
			return fmt.Errorf("send message %d: %w", sent, err)
		}
		sent++
		switch {
		case string(got) == end+strconv.Itoa(i):
			return nil
		case !bytes.Equal(got, message(i)):
			return fmt.Errorf("message %d is %.20q", i, got)
		}
		if i+1 == enough {
			fmt.Println("flowing")
		}
	}
}
