package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// do does an operation and returns what can be seen of it: "ok", an error, or
// what was read.
func (z *fuzzer) do(op fuzzOp) string {
	switch op.Op {
	case "put":
		return z.put(op)
	case "cat":
		return fuzzCat(op.A, op.At, op.Len)
	case "truncate":
		return fuzzErr(unix.Truncate(op.A, fuzzOtherSize(op.A, op.At)))
	case "open", "tmpfile":
		return z.open(op)
	case "mkdir":
		return fuzzErr(unix.Mkdir(op.A, uint32(op.Mode)))
	case "rmdir":
		return fuzzErr(unix.Rmdir(op.A))
	case "unlink":
		return fuzzErr(unix.Unlink(op.A))
	case "rename":
		result := fuzzErr(rename2(op.A, op.B, uint(op.Mode)))
		if !z.has("related") && strings.HasPrefix(result, "E") {
			return "refused" // one may be above the other all the same, by links
		}
		return result
	case "link":
		return fuzzErr(unix.Link(op.A, op.B))
	case "symlink":
		return fuzzErr(unix.Symlink(op.B, op.A))
	case "readlink":
		return fuzzLink(op.A)
	case "mkfifo":
		return fuzzErr(unix.Mkfifo(op.A, uint32(op.Mode)))
	case "list":
		return fuzzList(op.A)
	case "chmod":
		return fuzzErr(unix.Chmod(op.A, uint32(op.Mode)))
	case "chown":
		return fuzzErr(unix.Lchown(op.A, op.Mode, op.Len))
	case "utimes":
		return fuzzErr(fsSetTime(op.A, fsTime, unix.Timespec{Sec: op.At, Nsec: int64(op.Len)}))
	case "stat":
		return z.stat(op.A)
	case "access":
		return fuzzErr(unix.Faccessat(unix.AT_FDCWD, op.A, uint32(op.Mode), unix.AT_EACCESS))
	case "setxattr":
		return fuzzErr(unix.Lsetxattr(op.A, op.B, fuzzData(op.Data, op.Len), op.Mode))
	case "getxattr":
		return fuzzXattr(op.A, op.B)
	case "listxattr":
		return fuzzXattrs(op.A)
	case "removexattr":
		return fuzzErr(unix.Lremovexattr(op.A, op.B))
	case "map", "mapwrite", "mapread", "unmap", "mapprivate":
		return z.mapped(op)
	case "walk":
		return z.walk()
	}
	return z.byDescriptor(op)
}

func fuzzErr(err error) string {
	if err == nil {
		return "ok"
	}
	return fsErrno(err)
}

// fuzzData are bytes that another operation would not write.
func fuzzData(seed, n int) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// fuzzHash stands for contents.
func fuzzHash(b []byte) string {
	if len(b) <= 8 {
		return fmt.Sprintf("%d:%x", len(b), b)
	}
	sum := sha256.Sum256(b)
	return fmt.Sprintf("%d:%s", len(b), hex.EncodeToString(sum[:6]))
}

// fuzzOtherSize is size, or one more if the file has that already: whether the
// times change then is left open.
func fuzzOtherSize(name string, size int64) int64 {
	var st unix.Stat_t
	if unix.Stat(name, &st) == nil && st.Size == size {
		return size + 1
	}
	return size
}

func (z *fuzzer) put(op fuzzOp) string {
	fd, err := unix.Open(op.A, wronly|creat|op.Mode|unix.O_NONBLOCK|unix.O_CLOEXEC, uint32(op.At))
	if err != nil {
		return fuzzErr(err)
	}
	defer unix.Close(fd)
	return fuzzCount(op.Len, func(b []byte) (int, error) { return unix.Write(fd, b) }, fuzzData(op.Data, op.Len))
}

// fuzzCount is "ok" if all was written.
func fuzzCount(want int, write func([]byte) (int, error), data []byte) string {
	n, err := write(data)
	if err != nil || n != want {
		return fmt.Sprint(n, " ", fuzzErr(err))
	}
	return "ok"
}

func fuzzCat(name string, at int64, n int) string {
	fd, err := unix.Open(name, rdonly|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fuzzErr(err)
	}
	defer unix.Close(fd)
	return fuzzPread(fd, at, n)
}

func fuzzPread(fd int, at int64, n int) string {
	b := make([]byte, n)
	n, err := unix.Pread(fd, b, at)
	if err != nil {
		return fuzzErr(err)
	}
	return fuzzHash(b[:n])
}

// open puts a file into a slot. Fifos are not kept: how much one holds is not
// the file system's.
func (z *fuzzer) open(op fuzzOp) string {
	flags := op.Mode
	mode := uint32(0o640)
	if op.Op == "tmpfile" {
		flags, mode = rdwr|unix.O_TMPFILE, uint32(op.Mode)
	}
	fd, err := unix.Open(op.A, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, mode)
	if err != nil {
		return fuzzErr(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFIFO {
		unix.Close(fd)
		return "fifo"
	}
	if old := z.fds[op.Slot]; old >= 0 {
		unix.Close(old)
	}
	z.fds[op.Slot] = fd
	if op.Op == "open" && flags&creat != 0 {
		z.know(op.A, map[uint32]byte{unix.S_IFREG: 'f', unix.S_IFDIR: 'd'}[st.Mode&unix.S_IFMT])
	}
	return "ok"
}

// byDescriptor does what works on an open file.
func (z *fuzzer) byDescriptor(op fuzzOp) string {
	fd := z.fds[op.Slot]
	if fd < 0 {
		return "closed"
	}
	switch op.Op {
	case "pwrite":
		return fuzzCount(op.Len, func(b []byte) (int, error) { return unix.Pwrite(fd, b, op.At) }, fuzzData(op.Data, op.Len))
	case "write":
		return fuzzCount(op.Len, func(b []byte) (int, error) { return unix.Write(fd, b) }, fuzzData(op.Data, op.Len))
	case "pread":
		return fuzzPread(fd, op.At, op.Len)
	case "read":
		b := make([]byte, op.Len)
		n, err := unix.Read(fd, b)
		if err != nil {
			return fuzzErr(err)
		}
		return fuzzHash(b[:n])
	case "seek":
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return "directory"
		}
		at, err := unix.Seek(fd, op.At, op.Mode)
		return fmt.Sprint(at, " ", fuzzErr(err))
	case "ftruncate":
		return fuzzErr(unix.Ftruncate(fd, op.At))
	case "fallocate":
		return fuzzErr(fallocate(fd, uint32(op.Mode), op.At, int64(op.Len)))
	case "fstat":
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return fuzzErr(err)
		}
		return z.show(&st)
	case "fchmod":
		return fuzzErr(unix.Fchmod(fd, uint32(op.Mode)))
	case "fsync":
		return fuzzErr(unix.Fsync(fd))
	case "linkfd":
		return fuzzErr(unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, op.A, unix.AT_SYMLINK_FOLLOW))
	case "close":
		z.fds[op.Slot] = -1
		return fuzzErr(unix.Close(fd))
	}
	return "there is no such operation"
}

// settle sets the times of a file to known ones after operations of which it is
// left open when they change them.
func (z *fuzzer) settle(op fuzzOp) {
	fd := -1
	switch {
	case op.Op == "fallocate":
		fd = z.fds[op.Slot]
	case op.Op == "mapwrite" && z.maps[op.Slot] != nil:
		fd = z.maps[op.Slot].fd
	}
	if fd >= 0 {
		ts := []unix.Timespec{fsTime, {Sec: int64(op.Data)}}
		_ = unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), ts, 0) // if not, it shows
	}
}

// mapped does what works on mappings. Bytes behind the end of a file are left
// alone, as nothing is said about them.
func (z *fuzzer) mapped(op fuzzOp) string {
	if op.Op == "mapprivate" {
		return fuzzMapPrivate(op)
	}
	m := z.maps[op.Slot]
	if op.Op == "map" || op.Op == "unmap" {
		if m != nil {
			_ = unix.Munmap(m.data) // it is mapped
			unix.Close(m.fd)
			z.maps[op.Slot] = nil
		}
		if op.Op == "unmap" {
			return "ok"
		}
		fd, err := unix.Open(op.A, rdwr|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return fuzzErr(err)
		}
		const length = 64 * page // beyond the end of most files
		b, err := unix.Mmap(fd, 0, length, readWrite, shared)
		if err != nil {
			unix.Close(fd)
			return fuzzErr(err)
		}
		z.maps[op.Slot] = &fuzzMap{fd, b}
		return "ok"
	}
	if m == nil {
		return "closed"
	}
	var st unix.Stat_t
	if err := unix.Fstat(m.fd, &st); err != nil {
		return fuzzErr(err)
	}
	size := min(st.Size, int64(len(m.data)))
	if op.At >= size {
		if beyond := (size + page - 1) &^ (page - 1); beyond < int64(len(m.data)) && beyond >= st.Size {
			return fmt.Sprint("fault ", faults(m.data, int(beyond)))
		}
		return "beyond"
	}
	b := m.data[op.At:min(op.At+int64(op.Len), size)]
	if op.Op == "mapread" {
		return fuzzHash(b)
	}
	copy(b, fuzzData(op.Data, len(b)))
	return fuzzHash(b)
}

func fuzzMapPrivate(op fuzzOp) string {
	fd, err := unix.Open(op.A, rdonly|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fuzzErr(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || op.At >= st.Size || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "beyond"
	}
	start := op.At &^ (page - 1)
	end := min(op.At+int64(op.Len), st.Size)
	b, err := unix.Mmap(fd, start, int(end-start), readWrite, private)
	if err != nil {
		return fuzzErr(err)
	}
	defer unix.Munmap(b)
	seen := fuzzHash(b)
	clear(b) // which nobody else may see
	return seen
}

// show is what is the same on every file system of what stat(2) says. Times are
// told if they were set.
func (z *fuzzer) show(st *unix.Stat_t) string {
	kind := st.Mode & unix.S_IFMT
	s := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
	if kind != unix.S_IFDIR || z.has("dirnlink") {
		s += fmt.Sprint(" nlink ", st.Nlink)
	}
	if kind != unix.S_IFDIR {
		s += fmt.Sprint(" size ", st.Size)
	}
	if kind != unix.S_IFDIR || z.has("dirmtime") {
		if st.Mtim.Sec < 1e9 {
			s += fmt.Sprintf(" mtime %d.%09d", st.Mtim.Sec, st.Mtim.Nsec)
		} else {
			s += " mtime now"
		}
	}
	return s
}

func (z *fuzzer) stat(name string) string {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return fuzzErr(err)
	}
	return z.show(&st)
}

func fuzzLink(name string) string {
	b := make([]byte, 5000)
	n, err := unix.Readlink(name, b)
	if err != nil {
		return fuzzErr(err)
	}
	return string(b[:n])
}

// fuzzEntries returns the sorted names and types of a directory's entries.
func fuzzEntries(name string) (entries []fsEntry, err error) {
	fd, err := unix.Open(name, rdonly|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	t := &fsT{}
	for _, e := range t.entries(fd, 700) {
		if e.name != "." && e.name != ".." {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b fsEntry) int { return strings.Compare(a.name, b.name) })
	return entries, nil
}

func fuzzList(name string) string {
	entries, err := fuzzEntries(name)
	if err != nil {
		return fuzzErr(err)
	}
	s := ""
	for _, e := range entries {
		s += fmt.Sprintf("%s/%d ", e.name, e.kind)
	}
	return s
}

func fuzzXattr(name, attr string) string {
	b := make([]byte, 1<<16)
	n, err := unix.Lgetxattr(name, attr, b)
	if err != nil {
		return fuzzErr(err)
	}
	return fuzzHash(b[:n])
}

func fuzzXattrs(name string) string {
	b := make([]byte, 1<<16)
	n, err := unix.Llistxattr(name, b)
	if err != nil {
		return fuzzErr(err)
	}
	var names []string
	for attr := range strings.SplitSeq(string(b[:n]), "\x00") {
		if strings.HasPrefix(attr, "user.") {
			names = append(names, attr)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// walk looks at everything: a line for each file, and one for each open one.
func (z *fuzzer) walk() string {
	var out strings.Builder
	var inodes []uint64 // to tell which names are one file
	var visit func(dir string)
	visit = func(dir string) {
		entries, err := fuzzEntries(dir)
		if err != nil {
			fmt.Fprintf(&out, "%s %s\n", dir, fuzzErr(err))
		}
		for _, e := range entries {
			name := path.Join(dir, e.name)
			var st unix.Stat_t
			if err := unix.Lstat(name, &st); err != nil {
				fmt.Fprintf(&out, "%s %s\n", name, fuzzErr(err))
				continue
			}
			fmt.Fprintf(&out, "%s %s", name, z.show(&st))
			if z.has("xattr") && (e.kind == unix.DT_REG || e.kind == unix.DT_DIR) {
				for attr := range strings.FieldsSeq(fuzzXattrs(name)) {
					fmt.Fprintf(&out, " %s=%s", attr, fuzzXattr(name, attr))
				}
			}
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFREG:
				if st.Nlink > 1 && z.has("link") {
					i := slices.Index(inodes, st.Ino)
					if i < 0 {
						i, inodes = len(inodes), append(inodes, st.Ino)
					}
					fmt.Fprint(&out, " inode ", i)
				}
				fmt.Fprint(&out, " ", fuzzAll(name, st.Size))
			case unix.S_IFLNK:
				fmt.Fprint(&out, " -> ", fuzzLink(name))
			}
			out.WriteByte('\n')
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				visit(name)
			}
		}
	}
	visit(".")
	for i, fd := range z.fds {
		var st unix.Stat_t
		if fd >= 0 && unix.Fstat(fd, &st) == nil {
			fmt.Fprintf(&out, "slot %d %s\n", i, z.show(&st))
		}
	}
	return out.String()
}

// fuzzAll stands for all contents; of large files for both ends.
func fuzzAll(name string, size int64) string {
	const most = 400 << 10
	s := fuzzCat(name, 0, most)
	if size > most {
		s += "..." + fuzzCat(name, max(most, size-50000), 60000)
	}
	return s
}
