package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// fsNode is a file that a case finds in its directory.
type fsNode struct {
	kind     byte // d, f, l (symbolic link), h (hard link), p (fifo)
	name     string
	mode     uint32
	uid, gid int
	data     string // contents, or target
	many     bool   // one of very many, of which not every one is looked at
}

// fsTime is when the files of all cases were made: before everything.
var fsTime = unix.Timespec{Sec: 981173106, Nsec: 123456789}

// fsParse reads a list of files with ";" between them, each as
//
//	KIND[:MODE][@UID.GID] NAME [CONTENTS or TARGET]
//
// Contents "*N" are N bytes of a pattern. The kind n stands for as many empty
// files as the third word says, in a directory that came before; a tenth
// of them if that is bigDir and they are made before a fork, to save time.
func fsParse(tree, mode string) []fsNode {
	var nodes []fsNode
	for item := range strings.SplitSeq(tree, ";") {
		kind, rest, ok := strings.Cut(strings.TrimSpace(item), " ")
		if !ok {
			continue
		}
		name, data, _ := strings.Cut(rest, " ")
		n := fsNode{kind: kind[0], name: name, mode: 0o644, data: data}
		if n.kind == 'd' {
			n.mode = 0o755
		}
		kind, owner, _ := strings.Cut(kind[1:], "@")
		uid, gid, _ := strings.Cut(owner, ".")
		if mode := strings.TrimPrefix(kind, ":"); mode != "" {
			n.mode = uint32(mustInt(mode, 8))
		}
		if owner != "" {
			n.uid, n.gid = mustInt(uid, 10), mustInt(gid, 10)
		}
		if count, ok := strings.CutPrefix(data, "*"); ok {
			n.data = bytesOf(mustInt(count, 10))
		}
		if n.kind != 'n' {
			nodes = append(nodes, n)
			continue
		}
		count := mustInt(data, 10)
		if mode == fsForked && count == bigDir {
			count /= 10
		}
		for i := range count {
			nodes = append(nodes, fsNode{kind: 'f', name: fmt.Sprintf("%s/e%05d", name, i), mode: 0o644, many: i%100 != 0})
		}
	}
	return nodes
}

// mustInt is for the constants of the tables.
func mustInt(s string, base int) int {
	n, err := strconv.ParseInt(s, base, 64)
	if err != nil {
		panic(err)
	}
	return int(n)
}

// fsMakeTree makes a directory with the files.
func fsMakeTree(dir string, nodes []fsNode) error {
	if err := unix.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("mkdir %s: %w", dir, err)
	}
	for _, n := range nodes {
		if err := n.make(dir); err != nil {
			return fmt.Errorf("make %s: %w", n.name, err)
		}
	}
	// Directories after what is in them, as that changes their times.
	for _, n := range slices.Backward(append([]fsNode{{kind: 'd', name: "."}}, nodes...)) {
		if err := fsSetTime(path.Join(dir, n.name), fsTime, fsTime); err != nil {
			return fmt.Errorf("set times of %s: %w", n.name, err)
		}
	}
	return nil
}

func fsSetTime(name string, atime, mtime unix.Timespec) error {
	return unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{atime, mtime}, unix.AT_SYMLINK_NOFOLLOW)
}

func (n *fsNode) make(dir string) error {
	name := path.Join(dir, n.name)
	var err error
	switch n.kind {
	case 'd':
		err = unix.Mkdir(name, 0o755)
	case 'f':
		if n.data == "" && n.uid == 0 && n.gid == 0 { // there may be thousands of these
			return unix.Mknod(name, unix.S_IFREG|n.mode, 0)
		}
		err = os.WriteFile(name, []byte(n.data), 0o644)
	case 'p':
		err = unix.Mkfifo(name, 0o644)
	case 'l':
		err = unix.Symlink(n.data, name)
	case 'h':
		return unix.Link(path.Join(dir, n.data), name)
	default:
		err = errors.New("there is no such kind")
	}
	if err != nil {
		return err
	}
	if n.uid != 0 || n.gid != 0 {
		if err := unix.Lchown(name, n.uid, n.gid); err != nil {
			return err
		}
	}
	if n.kind == 'l' {
		return nil
	}
	return unix.Chmod(name, n.mode)
}

// fsCheckTree compares a directory with the list it was made of.
func fsCheckTree(dir string, nodes []fsNode) error {
	top := fsNode{kind: 'd', mode: 0o755}
	if err := top.check(dir); err != nil {
		return fmt.Errorf("the directory: %w", err)
	}
	want := map[string]fsNode{}
	for _, n := range nodes {
		if n.kind == 'h' {
			other := want[n.data]
			other.name = n.name
			n = other
		}
		want[n.name] = n
	}
	return fsCheckDir(dir, "", want)
}

func fsCheckDir(dir, sub string, want map[string]fsNode) error {
	entries, err := os.ReadDir(path.Join(dir, sub))
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, e := range entries {
		name := path.Join(sub, e.Name())
		found[name] = true
		n, ok := want[name]
		if !ok {
			return fmt.Errorf("%s is new", name)
		}
		if n.many {
			continue
		}
		if err := n.check(path.Join(dir, name)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if n.kind == 'd' {
			if err := fsCheckDir(dir, name, want); err != nil {
				return err
			}
		}
	}
	for name := range want {
		if parent, _ := path.Split(name); strings.TrimSuffix(parent, "/") == sub && !found[name] {
			return fmt.Errorf("%s is gone", name)
		}
	}
	return nil
}

var fsKinds = map[byte]uint32{'d': unix.S_IFDIR, 'f': unix.S_IFREG, 'l': unix.S_IFLNK, 'p': unix.S_IFIFO}

// check compares a file with what it was made as.
func (n *fsNode) check(name string) error {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return err
	}
	mode := fsKinds[n.kind] | n.mode
	if n.kind == 'l' {
		mode = unix.S_IFLNK | 0o777
	}
	switch {
	case st.Mode != mode:
		return fmt.Errorf("mode is %#o, not %#o", st.Mode, mode)
	case int(st.Uid) != n.uid || int(st.Gid) != n.gid:
		return fmt.Errorf("owner is %d:%d, not %d:%d", st.Uid, st.Gid, n.uid, n.gid)
	case st.Mtim != fsTime:
		return fmt.Errorf("mtime is %v, not %v", st.Mtim, fsTime)
	case n.kind != 'd' && st.Size != int64(len(n.data)):
		return fmt.Errorf("size is %d, not %d", st.Size, len(n.data))
	}
	switch {
	case n.kind == 'f' && st.Size > 0:
		if b, err := os.ReadFile(name); err != nil || string(b) != n.data {
			return fmt.Errorf("contents are %s, not %s (%v)", fsShow(string(b)), fsShow(n.data), err)
		}
	case n.kind == 'l':
		if target, err := os.Readlink(name); err != nil || target != n.data {
			return fmt.Errorf("target is %q, not %q (%v)", target, n.data, err)
		}
	}
	return nil
}

// fsTar writes an archive of the files of all cases, and of fuzzTree several
// times, for the image, below the directory that is its argument.
func fsTar(args []string) (int, error) {
	w := tar.NewWriter(os.Stdout)
	for _, c := range fsCases() {
		if c.once || c.limited {
			continue
		}
		if err := fsTarTree(w, fsCaseDir(args[0], c.name), fsParse(c.tree, fsImage)); err != nil {
			return 1, fmt.Errorf("case %s: %w", c.name, err)
		}
	}
	for i := range fuzzTrees {
		if err := fsTarTree(w, fmt.Sprintf("%s/fuzz.%d", args[0], i), fsParse(fuzzTree, fsImage)); err != nil {
			return 1, err
		}
	}
	return 0, w.Flush() // the caller goes on with more files
}

func fsTarTree(w *tar.Writer, dir string, nodes []fsNode) error {
	when := time.Unix(fsTime.Sec, fsTime.Nsec)
	types := map[byte]byte{'d': tar.TypeDir, 'f': tar.TypeReg, 'l': tar.TypeSymlink, 'h': tar.TypeLink, 'p': tar.TypeFifo}
	for _, n := range append([]fsNode{{kind: 'd', mode: 0o755}}, nodes...) {
		h := &tar.Header{
			Format: tar.FormatPAX, Typeflag: types[n.kind], Name: path.Join(dir, n.name),
			Mode: int64(n.mode), Uid: n.uid, Gid: n.gid, ModTime: when,
		}
		switch n.kind {
		case 'f':
			h.Size = int64(len(n.data))
		case 'l':
			h.Linkname, h.Mode = n.data, 0o777
		case 'h':
			h.Linkname = path.Join(dir, n.data)
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if n.kind == 'f' {
			if _, err := w.Write([]byte(n.data)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fsMake makes the files of all cases below a directory.
func fsMake(args []string) (int, error) {
	unix.Umask(0)
	if err := os.MkdirAll(args[0], 0o755); err != nil {
		return 1, err
	}
	for _, c := range fsCases() {
		if c.once || c.limited {
			continue
		}
		if err := fsMakeTree(fsCaseDir(args[0], c.name), fsParse(c.tree, fsForked)); err != nil {
			return 1, fmt.Errorf("case %s: %w", c.name, err)
		}
	}
	return 0, nil
}

// fsVerify checks that the files of all cases below a directory are as they were
// made in a mode.
func fsVerify(args []string) (int, error) {
	for _, c := range fsCases() {
		if c.once || c.limited {
			continue
		}
		if err := fsCheckTree(fsCaseDir(args[1], c.name), fsParse(c.tree, args[0])); err != nil {
			return 1, fmt.Errorf("case %s: %w", c.name, err)
		}
	}
	return 0, nil
}
