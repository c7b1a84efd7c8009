package main

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// edit changes files. Each argument is one change: a verb and what it needs, of
// which the last may have spaces. In quotes it is a string as in Go, for what is no
// UTF-8.
func edit(args []string) (int, error) {
	for _, arg := range args {
		if err := editOne(arg); err != nil {
			return 1, fmt.Errorf("%s: %w", arg, err)
		}
	}
	return 0, nil
}

func editOne(arg string) error {
	if strings.HasPrefix(arg, `"`) {
		var err error
		if arg, err = strconv.Unquote(arg); err != nil {
			return err
		}
	}
	w := strings.SplitN(arg, " ", 3)
	for len(w) < 3 {
		w = append(w, "")
	}
	switch w[0] {
	case "put": // as an editor that writes in place
		return os.WriteFile(w[1], []byte(w[2]), 0o644)
	case "add":
		f, err := os.OpenFile(w[1], os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(w[2])
		return errors.Join(err, f.Close())
	case "size":
		n, err := strconv.ParseInt(w[2], 10, 64)
		if err != nil {
			return err
		}
		return os.Truncate(w[1], n)
	case "mkdir":
		return os.MkdirAll(w[1], 0o755)
	case "rm":
		return os.RemoveAll(w[1])
	case "mv":
		return os.Rename(w[1], w[2])
	case "sym":
		return os.Symlink(w[2], w[1])
	case "ln":
		return os.Link(w[2], w[1])
	case "fifo":
		return unix.Mkfifo(w[1], 0o644)
	case "null":
		return unix.Mknod(w[1], unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	case "chmod":
		mode, err := strconv.ParseUint(w[2], 8, 32)
		if err != nil {
			return err
		}
		return unix.Chmod(w[1], uint32(mode))
	case "chown":
		uid, gid, _ := strings.Cut(w[2], ".")
		return os.Lchown(w[1], mustInt(uid, 10), mustInt(gid, 10))
	case "xattr":
		name, value, ok := strings.Cut(w[2], " ")
		if !ok {
			return unix.Removexattr(w[1], name)
		}
		return unix.Setxattr(w[1], name, []byte(value), 0)
	case "mount":
		return unix.Mount("tmpfs", w[1], "tmpfs", 0, "")
	}
	return fmt.Errorf("no verb %q", w[0])
}

// list prints all that matters of the files at and below its arguments, a line for
// each: path, mode, owner, extended attributes, contents or target. Names of one
// file have the first of them in their lines.
func list(args []string) (int, error) {
	firsts := map[uint64]string{}
	for _, root := range args {
		err := filepath.WalkDir(root, func(name string, d iofs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			l, err := listOne(name, firsts)
			if err == nil {
				fmt.Println(l)
			}
			return err
		})
		if err != nil {
			return 1, err
		}
	}
	return 0, nil
}

func listOne(name string, firsts map[uint64]string) (string, error) {
	st, err := os.Lstat(name)
	if err != nil {
		return "", err
	}
	sys := st.Sys().(*syscall.Stat_t)
	l := fmt.Sprintf("%s %06o %d.%d", name, sys.Mode, sys.Uid, sys.Gid)
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(name, buf)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return "", err
	}
	names := strings.Split(strings.TrimSuffix(string(buf[:max(n, 0)]), "\x00"), "\x00")
	slices.Sort(names)
	for _, x := range names {
		if x == "" {
			continue
		}
		v := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(name, x, v)
		if err != nil {
			return "", err
		}
		l += fmt.Sprintf(" %s=%q", x, v[:n])
	}
	switch sys.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		b, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		l += fmt.Sprintf(" %q", b)
	case unix.S_IFLNK:
		target, err := os.Readlink(name)
		if err != nil {
			return "", err
		}
		l += " -> " + target
	case unix.S_IFCHR:
		l += fmt.Sprintf(" device %d:%d", unix.Major(sys.Rdev), unix.Minor(sys.Rdev))
	}
	if !st.IsDir() && sys.Nlink > 1 {
		if first, ok := firsts[sys.Ino]; ok {
			l += " = " + first
		} else {
			firsts[sys.Ino] = name
		}
		l += fmt.Sprintf(" (%d)", sys.Nlink)
	}
	return l, nil
}

// stay works in the directory of its first argument, and has the file of its second
// open, in the background. When something is written to the pipe that it makes at
// its third, it writes to the fourth where it is and what it reads, and makes a file
// where it works.
func stay(args []string) (int, error) {
	if err := unix.Mkfifo(args[2], 0o644); err != nil {
		return 1, err
	}
	c := exec.Command("/proc/self/exe", append([]string{"staying"}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ready, end, err := os.Pipe()
	if err != nil {
		return 1, err
	}
	c.ExtraFiles = []*os.File{end}
	if err := c.Start(); err != nil {
		return 1, err
	}
	end.Close()
	_, err = io.Copy(io.Discard, ready) // until it has opened what it is to have open
	return 0, err
}

func staying(args []string) (int, error) {
	f, err := os.Open(args[1])
	if err != nil {
		return 1, err
	}
	if err := os.Chdir(args[0]); err != nil {
		return 1, err
	}
	if err := os.NewFile(3, "ready").Close(); err != nil {
		return 1, err
	}
	for {
		if _, err := os.ReadFile(args[2]); err != nil { // waits for a writer
			return 1, err
		}
		wd, wdErr := unix.Getcwd(make([]byte, 4096))
		data := make([]byte, 100)
		n, _ := f.ReadAt(data, 0)
		report := fmt.Sprintf("cwd %v %q, file %q", wd > 0 && wdErr == nil, exeLink("cwd"), data[:n])
		if err := os.WriteFile("made", []byte("x"), 0o644); err != nil {
			report += ", " + err.Error()
		}
		if err := os.WriteFile(args[3]+".new", []byte(report), 0o644); err != nil {
			return 1, err
		}
		if err := os.Rename(args[3]+".new", args[3]); err != nil {
			return 1, err
		}
	}
}

func exeLink(name string) string {
	l, err := os.Readlink("/proc/self/" + name)
	if err != nil {
		return err.Error()
	}
	return l
}

// scribble rewrites a file as fast as it can until it is killed.
func scribble(args []string) (int, error) {
	for i := 0; ; i++ {
		if err := os.WriteFile(args[0], []byte(strconv.Itoa(i)), 0o644); err != nil {
			return 1, err
		}
	}
}
