package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// screen prints the size of its terminal, at first and whenever it changes, and
// what it reads. It says "interrupted" when it is, and needs its terminal to be the
// one that controls it.
func screen([]string) (int, error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGWINCH, unix.SIGINT)
	if err := printSize(); err != nil {
		return 1, err
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return 1, err
	}
	defer tty.Close()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	for {
		select {
		case s := <-signals:
			if s == unix.SIGINT {
				fmt.Println("interrupted")
			} else if err := printSize(); err != nil {
				return 1, err
			}
		case line, ok := <-lines:
			if !ok {
				return 0, nil
			}
			fmt.Printf("read %q\n", line)
		}
	}
}

func printSize() error {
	size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	if err != nil {
		return fmt.Errorf("ask for the size: %w", err)
	}
	_, err = fmt.Printf("%d x %d\n", size.Col, size.Row)
	return err
}
