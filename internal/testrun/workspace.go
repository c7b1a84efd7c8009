package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// workspace is the repository and the directory of one run.
type workspace struct {
	top       string // the repository
	dir       string // test binaries and temporary directories of jobs; short, as sockets lie below it
	test2json string // the program that turns the output of a test binary into events
	log       *os.File
	began     time.Time
	jobs      atomic.Int32 // started so far
}

func openWorkspace() (w *workspace, err error) {
	w = &workspace{began: time.Now()}
	if w.top, err = output("git", "rev-parse", "--show-toplevel"); err != nil { // git does not serve every clone
		if w.top, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	if w.test2json, err = output("go", "tool", "-n", "test2json"); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(w.top, ".cache"), 0o755); err != nil {
		return nil, err
	}
	if w.log, err = os.Create(filepath.Join(w.top, ".cache/test.log")); err != nil {
		return nil, err
	}
	w.dir, err = shortDir()
	return w, err
}

// shortDir makes a directory that all users pass through. Its path is short, as tests make
// sockets below it.
func shortDir() (string, error) {
	for {
		dir := filepath.Join(os.TempDir(), "r"+strconv.FormatInt(rand.Int64N(36*36*36), 36))
		if err := os.Mkdir(dir, 0o755); !errors.Is(err, fs.ErrExist) {
			return dir, errors.Join(err, os.Chmod(dir, 0o755))
		}
	}
}

func (w *workspace) close() error {
	return errors.Join(w.log.Close(), os.RemoveAll(w.dir))
}

func (w *workspace) timesFile() string { return filepath.Join(w.top, "internal/testrun/times.txt") }

// binary is the path of a suite's test binary.
func (w *workspace) binary(pkg string) string {
	return filepath.Join(w.dir, filepath.Base(pkg)+".test")
}

// scratch makes the temporary directory of one job.
func (w *workspace) scratch() (string, error) {
	dir := filepath.Join(w.dir, strconv.Itoa(int(w.jobs.Add(1))))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o1777)
}

// output returns the first line that a command prints.
func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line, err
}
