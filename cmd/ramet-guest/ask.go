package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"syscall"

	"ramet.dev/ramet/internal/engine/control"
)

// ask sends a request on the socket and returns the answer without its newline. It waits without a
// time limit. It does not use package net, which would double the size of the program.
func ask(req control.Request) ([]byte, error) {
	line, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errors.New("make a socket: " + err.Error())
	}
	defer syscall.Close(fd)
	if err := again(func() error { return syscall.Connect(fd, &syscall.SockaddrUnix{Name: control.SocketPath}) }); err != nil {
		return nil, errors.New("reach " + control.SocketPath + ": " + err.Error() + ": this sandbox may not control itself, or too many ask at once")
	}
	for line = append(line, '\n'); len(line) > 0; {
		var n int
		if err := again(func() (err error) { n, err = syscall.Write(fd, line); return err }); err != nil {
			return nil, errors.New("ask: " + err.Error())
		}
		line = line[n:]
	}
	var answer []byte
	buf := make([]byte, 16<<10)
	for {
		var n int
		if err := again(func() (err error) { n, err = syscall.Read(fd, buf); return err }); err != nil {
			return nil, errors.New("wait for the answer: " + err.Error())
		}
		if n == 0 {
			return nil, errors.New("the connection ended without an answer")
		}
		answer = append(answer, buf[:n]...)
		if i := bytes.IndexByte(answer, '\n'); i >= 0 {
			return answer[:i], nil
		}
	}
}

// again repeats a system call that a signal interrupted.
func again(do func() error) error {
	for {
		if err := do(); err != syscall.EINTR {
			return err
		}
	}
}
