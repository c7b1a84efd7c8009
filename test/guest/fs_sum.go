package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// fsChurn makes a directory unless it is there, and does that many operations of
// the fuzzer in it.
func fsChurn(args []string) (int, error) {
	dir, seed, count := args[0], mustInt(args[1], 10), mustInt(args[2], 10)
	z := newFuzzer(args[3])
	if _, err := os.Stat(dir); errors.Is(err, iofs.ErrNotExist) {
		if err := fsMakeTree(dir, z.tree()); err != nil {
			return 1, err
		}
	}
	if err := os.Chdir(dir); err != nil {
		return 1, err
	}
	z.rng = rand.New(rand.NewPCG(uint64(seed), 0))
	for range count {
		if err := z.careless(); err != nil {
			return 1, err
		}
	}
	return 0, nil
}

// fsSum prints a checksum of all that is in a directory: names, contents, and
// attributes but for the time of access.
func fsSum(args []string) (int, error) {
	sum := sha256.New()
	err := filepath.WalkDir(args[0], func(path string, _ iofs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return err
		}
		fmt.Fprintf(sum, "%q %o %d %d %d %d %d %d %v", path, s.Mode, s.Ino, s.Nlink, s.Uid, s.Gid, s.Size, s.Rdev, s.Mtim)
		attributes := make([]byte, 64<<10)
		if n, err := unix.Llistxattr(path, attributes); err == nil {
			for _, name := range strings.Split(string(attributes[:n]), "\x00") {
				val := make([]byte, 64<<10)
				if n, err := unix.Lgetxattr(path, name, val); err == nil {
					fmt.Fprintf(sum, "%q %x", name, val[:n])
				}
			}
		}
		switch s.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(path)
			fmt.Fprintf(sum, "%x", sha256.Sum256(b))
			return err
		case unix.S_IFLNK:
			target, err := os.Readlink(path)
			fmt.Fprintf(sum, "%q", target)
			return err
		}
		return nil
	})
	if err != nil {
		return 1, err
	}
	_, err = fmt.Print(hex.EncodeToString(sum.Sum(nil)))
	return 0, err
}

const journalRecords = 40

// journalRecord is what is in a file of the journal: its number, and data that
// follows from it.
func journalRecord(n int) string {
	return fmt.Sprintln(n) + strings.Repeat(fmt.Sprintf("%08d", n), n*7919%6000)
}

// fsJournal writes files one after another until it is killed, each whole and then
// renamed to its place, and a line about it. "start" does it in the background,
// "check" looks whether all is as it was ever written, and prints the last number.
func fsJournal(args []string) (int, error) {
	switch args[0] {
	case "start":
		if err := os.MkdirAll(args[1], 0o755); err != nil {
			return 1, err
		}
		c := exec.Command("/proc/self/exe", "fs", "journal", "run", args[1])
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return 0, c.Start()
	case "check":
		return fsJournalCheck(args[1])
	}
	if err := os.Chdir(args[1]); err != nil {
		return 1, err
	}
	journal, err := os.OpenFile("journal", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	for n := 1; err == nil; n++ {
		if err = os.WriteFile("temp", []byte(journalRecord(n)), 0o644); err != nil {
			break
		}
		if err = os.Rename("temp", fmt.Sprint("record", n%journalRecords)); err == nil {
			_, err = fmt.Fprintln(journal, n)
		}
	}
	return 1, err
}

func fsJournalCheck(dir string) (int, error) {
	f, err := os.Open(filepath.Join(dir, "journal"))
	if err != nil {
		return 1, err
	}
	defer f.Close()
	last := 0
	for lines := bufio.NewScanner(f); lines.Scan(); last++ {
		if lines.Text() != fmt.Sprint(last+1) {
			return 1, fmt.Errorf("%q follows after %d", lines.Text(), last)
		}
	}
	for i := range min(journalRecords, last) {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("record", i)))
		if err != nil {
			return 1, err
		}
		n := 0
		if _, err := fmt.Sscanln(string(b), &n); err != nil || n%journalRecords != i || n+2*journalRecords < last || string(b) != journalRecord(n) {
			return 1, fmt.Errorf("record %d is of %d with %d bytes, the last is %d: %w", i, n, len(b), last, err)
		}
	}
	_, err = fmt.Print(last)
	return 0, err
}
