package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/storage/paths"
)

// freshStart bounds the start of a daemon.
const freshStart = 30 * time.Second

// freshDaemon starts a daemon beside that of the user, which has the images of that one and nothing else.
// The function that it returns ends the daemon and removes its files.
func freshDaemon(ctx context.Context) (_ *client.Client, end func() error, err error) {
	p, err := paths.Find()
	if err != nil {
		return nil, nil, err
	}
	// Sockets lie below the one, whose path must be short; files of images are linked to the other.
	run, err := os.MkdirTemp("", "ramet-bench-")
	if err != nil {
		return nil, nil, err
	}
	data, err := os.MkdirTemp(filepath.Dir(p.DataDir()), ".ramet-bench-")
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(run))
	}
	remove := func() error { return errors.Join(os.RemoveAll(run), os.RemoveAll(data)) }
	defer func() {
		if err != nil {
			err = errors.Join(err, remove())
		}
	}()
	if err := linkTree(p.Images(), filepath.Join(data, "ramet", "images")); err != nil {
		return nil, nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(program, "serve")
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+run, "XDG_DATA_HOME="+data)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() error {
		serr := cmd.Process.Signal(syscall.SIGTERM)
		return errors.Join(serr, cmd.Wait())
	}
	c, err := client.New("unix:" + filepath.Join(run, "ramet", "ramet.sock"))
	if err == nil {
		err = answers(ctx, c)
	}
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return c, func() error { return errors.Join(stop(), remove()) }, nil
}

// answers waits until a daemon that starts answers.
func answers(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, freshStart)
	defer cancel()
	for {
		_, err := c.Health(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the daemon does not answer: %w", err)
		}
	}
}

// linkTree makes a directory with links to the files of another one.
func linkTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if e.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		return os.Link(path, target)
	})
}
