package main

import (
	"net"
	"strconv"
)

// calls makes as many TCP connections as its argument says, one after the other, to itself,
// and closes them at both ends.
func calls(args []string) (int, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 2, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 1, err
	}
	defer l.Close()
	for range n {
		caller, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return 1, err
		}
		called, err := l.Accept()
		if err != nil {
			return 1, err
		}
		for _, c := range []net.Conn{caller, called} {
			if err := c.Close(); err != nil {
				return 1, err
			}
		}
	}
	return 0, nil
}
