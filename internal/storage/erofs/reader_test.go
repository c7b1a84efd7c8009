package erofs_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ramet.dev/ramet/internal/storage/erofs"
)

var le = binary.LittleEndian

// smallImage returns an image with a file of each kind, one with extended
// attributes, and directories with and without leading blocks.
func smallImage(tb testing.TB) []byte {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "img")
	writeImage(tb, path, func(w *erofs.Writer, tree *erofs.Tree) {
		putFile(tb, w, tree, "file", "content")
		put(tb, tree, "empty", erofs.Node{Kind: erofs.Regular})
		put(tb, tree, "labelled", erofs.Node{Kind: erofs.Regular, Xattrs: []erofs.Xattr{
			{Name: "user.a", Value: []byte("some")}, {Name: "security.capability", Value: []byte{1, 0, 0, 2}},
		}})
		put(tb, tree, "link", erofs.Node{Kind: erofs.Symlink, Target: "file"})
		put(tb, tree, "longlink", erofs.Node{Kind: erofs.Symlink, Target: strings.Repeat("t", erofs.MaxTargetLen)})
		put(tb, tree, "fifo", erofs.Node{Kind: erofs.Fifo})
		put(tb, tree, "null", erofs.Node{Kind: erofs.CharDevice, Major: 1, Minor: 3})
		put(tb, tree, "dir", erofs.Node{Kind: erofs.Directory})
		for i := range 60 {
			link(tb, tree, fmt.Sprintf("big/%0100d", i), "empty")
		}
	})
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// seal makes the superblock's checksum right again.
func seal(data []byte) {
	sb := data[1024:erofs.BlockSize]
	clear(sb[4:8])
	le.PutUint32(sb[4:], ^crc32.Checksum(sb, crc32.MakeTable(crc32.Castagnoli)))
}

func openImage(tb testing.TB, data []byte) *erofs.Reader {
	tb.Helper()
	r, err := erofs.NewReader(data)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// inodeAt returns the inode at path and its offset in the image.
func inodeAt(tb testing.TB, data []byte, path string) (erofs.Inode, int) {
	tb.Helper()
	r := openImage(tb, data)
	nid := r.Root()
	for name := range strings.SplitSeq(path, "/") {
		dir, err := r.Inode(nid)
		if err != nil {
			tb.Fatal(err)
		}
		if name == "" {
			continue
		}
		var ok bool
		if nid, _, ok, err = r.Lookup(&dir, name); !ok || err != nil {
			tb.Fatalf("lookup of %q in %q: %v, %v", name, path, ok, err)
		}
	}
	i, err := r.Inode(nid)
	if err != nil {
		tb.Fatal(err)
	}
	return i, int(le.Uint32(data[1024+40:]))*erofs.BlockSize + int(nid)*32
}

// visitAll makes every call on the tree and returns the first error.
func visitAll(r *erofs.Reader, limit int) error {
	seen := map[uint64]bool{}
	todo := []uint64{r.Root()}
	for len(todo) > 0 && len(seen) < limit {
		nid := todo[len(todo)-1]
		if todo = todo[:len(todo)-1]; seen[nid] {
			continue
		}
		seen[nid] = true
		i, err := r.Inode(nid)
		if err == nil {
			err = r.Xattrs(&i, func(string, []byte) bool { return true })
		}
		if err != nil {
			return err
		}
		switch i.Mode & syscall.S_IFMT {
		case syscall.S_IFREG:
			_, err = r.DataOffset(&i)
		case syscall.S_IFLNK:
			_, err = r.Readlink(&i)
		case syscall.S_IFDIR:
			err = r.Entries(&i, "", func(_ string, _ uint8, nid uint64) bool {
				todo = append(todo, nid)
				return true
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestReadsMkfsImages(t *testing.T) {
	tool, err := exec.LookPath("mkfs.erofs")
	if err != nil {
		t.Skip("erofs-utils is not installed")
	}
	src := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(src+"/many/deep", 0o755))
	for i := range 600 {
		must(os.WriteFile(fmt.Sprintf("%s/many/some-longer-name-%d", src, i), fmt.Append(nil, i), 0o640))
	}
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000} {
		must(os.WriteFile(fmt.Sprintf("%s/f%d", src, size), []byte(strings.Repeat("d", size)), 0o600))
	}
	must(os.Symlink("many/deep", src+"/short"))
	must(os.Symlink(strings.Repeat("l", 4090), src+"/long"))
	must(os.Link(src+"/f1", src+"/many/deep/!linked"))
	must(os.WriteFile(src+"/-before-dots", nil, 0o600))
	must(syscall.Mkfifo(src+"/fifo", 0o600))
	want := map[string]file{}
	must(filepath.WalkDir(src, func(path string, _ os.DirEntry, err error) error {
		var st syscall.Stat_t
		if err := errors.Join(err, syscall.Lstat(path, &st)); err != nil {
			return err
		}
		f := file{
			Kind: kindOf(st.Mode), Mode: uint16(st.Mode & 0o7777), UID: st.Uid, GID: st.Gid,
			Mtime: uint64(st.Mtim.Sec), Nsec: uint32(st.Mtim.Nsec), Nlink: uint32(st.Nlink),
		}
		var content []byte
		switch f.Kind {
		case erofs.Regular:
			content, err = os.ReadFile(path)
			f.Content = string(content)
		case erofs.Symlink:
			f.Content, err = os.Readlink(path)
		}
		name, _ := strings.CutPrefix(strings.TrimPrefix(path, src), "/")
		want[name] = f
		return err
	}))
	for _, args := range [][]string{nil, {"-Eforce-inode-extended"}, {"-Eforce-inode-compact", "-T1000"}} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "img")
			args = append(args, "-x-1", "-Enoinline_data", path, src)
			if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
				t.Fatalf("mkfs.erofs: %v\n%s", err, out)
			}
			got := readImage(t, path)
			for name, w := range want {
				g := got[name]
				if w.Nid = g.Nid; strings.HasPrefix(args[0], "-Eforce-inode-compact") {
					w.Mtime, w.Nsec = 1000, 0
				}
				if g != w {
					t.Errorf("%q: got %+.200v, want %+.200v", name, g, w)
				}
			}
			if len(got) != len(want) {
				t.Errorf("got %d paths, want %d", len(got), len(want))
			}
		})
	}
}

func TestMkfsImagesOfOtherFeaturesAreRefused(t *testing.T) {
	tool, err := exec.LookPath("mkfs.erofs")
	if err != nil {
		t.Skip("erofs-utils is not installed")
	}
	src := t.TempDir()
	if err := os.WriteFile(src+"/f", []byte(strings.Repeat("tail", 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]string{
		"-x-1":              "contents are behind the inode",
		"-zlz4":             "zero_padding",
		"--chunksize=4096":  "chunked_file",
		"-Enosbcrc":         "no checksum",
		"-Elegacy-compress": "",
	} {
		t.Run(arg, func(t *testing.T) {
			args := []string{arg, filepath.Join(t.TempDir(), "img"), src}
			if arg == "-Elegacy-compress" {
				args = append([]string{"-zlz4"}, args...)
				want = "compressed or in chunks"
			}
			if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
				t.Fatalf("mkfs.erofs: %v\n%s", err, out)
			}
			data, err := os.ReadFile(args[len(args)-2])
			if err != nil {
				t.Fatal(err)
			}
			r, err := erofs.NewReader(data)
			if err == nil {
				err = visitAll(r, 10)
			}
			if !errors.Is(err, erofs.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("got %v, want one about %q", err, want)
			}
		})
	}
}

// TestDamagedSuperblock changes single fields of an image. The reason that is
// expected is part of the error.
func TestDamagedSuperblock(t *testing.T) {
	good := smallImage(t)
	for reason, damage := range map[string]func(sb []byte){
		"magic number is 0x0":                            func(sb []byte) { le.PutUint32(sb, 0) },
		"blocks have 2^9 bytes":                          func(sb []byte) { sb[12] = 9 },
		"superblock has no checksum":                     func(sb []byte) { sb[8] &^= 1 },
		"compatible feature xattr_filter, number 9":      func(sb []byte) { sb[8], sb[9] = sb[8]|4, 2 },
		"incompatible feature zero_padding, 48bit":       func(sb []byte) { sb[80] = 0x81 },
		"incompatible feature number 31":                 func(sb []byte) { sb[83] = 0x80 },
		"extended superblock":                            func(sb []byte) { sb[13] = 1 },
		"extra devices":                                  func(sb []byte) { sb[87] = 1 },
		"directory blocks of another size":               func(sb []byte) { sb[90] = 1 },
		"the superblock says":                            func(sb []byte) { le.PutUint32(sb[36:], le.Uint32(sb[36:])+1) },
		"the superblock says 0 with":                     func(sb []byte) { le.PutUint32(sb[36:], 0) },
		"with metadata at 17592186040320":                func(sb []byte) { le.PutUint32(sb[40:], 1<<32-1) },
		"read root directory: image is corrupt: inode 0": func(sb []byte) { le.PutUint16(sb[14:], 0) },
		"read root directory: image is corrupt: inode 65535: there is room for": func(sb []byte) { le.PutUint16(sb[14:], 1<<16-1) },
		"the root is not a directory": func(sb []byte) {
			i, _ := inodeAt(t, good, "file")
			le.PutUint16(sb[14:], uint16(i.Nid))
		},
	} {
		data := append([]byte{}, good...)
		damage(data[1024:])
		if r, err := erofs.NewReader(data); err == nil {
			t.Errorf("%s: no error without checksum: %v", reason, r.Root())
		}
		seal(data)
		_, err := erofs.NewReader(data)
		if !errors.Is(err, erofs.ErrCorrupt) && !errors.Is(err, erofs.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), reason) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
	for off := 1024; off < erofs.BlockSize; off++ {
		data := append([]byte{}, good...)
		data[off] ^= 0x40
		if _, err := erofs.NewReader(data); err == nil {
			t.Fatalf("a flipped bit at %d is not noticed", off)
		}
	}
	for size := 0; size < len(good); size += 512 {
		if _, err := erofs.NewReader(good[:size]); !errors.Is(err, erofs.ErrCorrupt) {
			t.Fatalf("an image cut at %d: %v", size, err)
		}
	}
	if err := visitAll(openImage(t, append(good, "what follows an image"...)), 100); err != nil {
		t.Errorf("bytes behind the image: %v", err)
	}
}

// TestDamagedInode changes inodes; b begins with that of path.
func TestDamagedInode(t *testing.T) {
	good := smallImage(t)
	for reason, c := range map[string]struct {
		path   string
		damage func(b []byte)
	}{
		"extended attributes are cut off":  {"file", func(b []byte) { le.PutUint16(b[2:], 1<<16-1) }},
		"format is 0x11":                   {"file", func(b []byte) { b[0] |= 0x10 }},
		"(layout 1)":                       {"file", func(b []byte) { b[0] = 1 | 1<<1 }},
		"(layout 4)":                       {"file", func(b []byte) { b[0] = 1 | 4<<1 }},
		"1000000000 ns":                    {"file", func(b []byte) { le.PutUint32(b[40:], 1e9) }},
		"0 links":                          {"file", func(b []byte) { le.PutUint32(b[44:], 0) }},
		"mode is 0170644":                  {"file", func(b []byte) { le.PutUint16(b[4:], 0o170644) }},
		"7 bytes at 0":                     {"file", func(b []byte) { le.PutUint32(b[16:], 0) }},
		"7 bytes at 17592186040320":        {"file", func(b []byte) { le.PutUint32(b[16:], 1<<32-1) }},
		"18446744073709551615 bytes at":    {"file", func(b []byte) { le.PutUint64(b[8:], 1<<64-1) }},
		"9223372036854775807 bytes at":     {"file", func(b []byte) { le.PutUint64(b[8:], 1<<63-1) }},
		"a special file of 1 bytes":        {"fifo", func(b []byte) { b[8] = 1 }},
		"a symbolic link of 0 bytes":       {"link", func(b []byte) { b[8] = 0 }},
		"a symbolic link of 4096 bytes":    {"longlink", func(b []byte) { le.PutUint64(b[8:], 4096) }},
		`target "fi\x00e" holds a NUL`:     {"link", func(b []byte) { b[64+2] = 0 }},
		"0 bytes do not fit behind it":     {"big", func(b []byte) { le.PutUint64(b[8:], 4096) }},
		"4095 bytes do not fit behind it":  {"big", func(b []byte) { le.PutUint64(b[8:], 4095) }},
		"72057594037923840 bytes at":       {"big", func(b []byte) { le.PutUint64(b[8:], 1<<56-4096+le.Uint64(b[8:])%4096) }},
		"block of 1 bytes":                 {"dir", func(b []byte) { b[8] = 1 }},
		"names at 0 in block 0":            {"dir", func(b []byte) { le.PutUint16(b[64+8:], 0) }},
		"names at 25 in block 0":           {"dir", func(b []byte) { le.PutUint16(b[64+8:], 25) }},
		"names at 65532 in block 0":        {"dir", func(b []byte) { le.PutUint16(b[64+8:], 65532) }},
		"name of an entry at 24 to 24":     {"dir", func(b []byte) { le.PutUint16(b[64+20:], 24) }},
		"name of an entry at 65535 to 27":  {"dir", func(b []byte) { le.PutUint16(b[64+20:], 1<<16-1) }},
		"name of an entry at 25 to 27":     {"dir", func(b []byte) { b[64+25] = 0 }}, // empty
		`entry "/" follows ""`:             {"dir", func(b []byte) { b[64+24] = '/' }},
		`entry "." follows "."`:            {"dir", func(b []byte) { le.PutUint64(b[8:], 26) }},
		"entry of type 8":                  {"dir", func(b []byte) { b[64+10] = 8 }},
		"entry of type 0":                  {"dir", func(b []byte) { b[64+12+10] = 0 }},
		"inode 2305843009213693951: there": {"dir", func(b []byte) { le.PutUint64(b[64:], 1<<61-1); b[64+24] = '-' }},
	} {
		data := append([]byte{}, good...)
		_, off := inodeAt(t, good, c.path)
		c.damage(data[off:])
		err := visitAll(openImage(t, data), 100)
		if !errors.Is(err, erofs.ErrCorrupt) && !errors.Is(err, erofs.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), reason) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}

func TestOrderAcrossBlocksIsChecked(t *testing.T) {
	data := smallImage(t)
	dir, _ := inodeAt(t, data, "big")
	r := openImage(t, data)
	names := 0
	count := func(string, uint8, uint64) bool { names++; return true }
	if err := r.Entries(&dir, "", count); err != nil || names != 60 {
		t.Fatalf("%d names, %v", names, err)
	}
	second := strings.Index(string(data), fmt.Sprintf("%0100d", 36)) // the first name of the second block
	data[second] = '!'
	if err := r.Entries(&dir, "", count); !errors.Is(err, erofs.ErrCorrupt) || names != 60+36 {
		t.Errorf("%d names, %v", names, err)
	}
}

func TestWrongKindOfFile(t *testing.T) {
	data := smallImage(t)
	r := openImage(t, data)
	dir, _ := inodeAt(t, data, "dir")
	fifo, _ := inodeAt(t, data, "fifo")
	_, dirOffset := r.DataOffset(&dir)
	_, dirLink := r.Readlink(&dir)
	_, _, _, lookup := r.Lookup(&fifo, "x")
	list := r.Entries(&fifo, "", nil)
	for _, c := range []struct{ got, want error }{
		{dirOffset, syscall.EINVAL}, {dirLink, syscall.EINVAL}, {lookup, syscall.ENOTDIR}, {list, syscall.ENOTDIR},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
	// Made up inodes are as good as hostile ones.
	for _, kind := range []uint32{syscall.S_IFREG, syscall.S_IFLNK, syscall.S_IFDIR} {
		for _, size := range []uint64{1, 5000, 1<<63 + 5, 1<<64 - 1} {
			i := erofs.Inode{Mode: kind, Size: size}
			_, _ = r.DataOffset(&i)
			_, _ = r.Readlink(&i)
			_, _, _, _ = r.Lookup(&i, "x")
			_ = r.Entries(&i, "x", func(string, uint8, uint64) bool { return true })
		}
	}
}

func TestReadingDoesNotAllocate(t *testing.T) {
	data := smallImage(t)
	r := openImage(t, data)
	nid, name := r.Root(), fmt.Sprintf("%0100d", 41)
	allocs := testing.AllocsPerRun(100, func() {
		root, err := r.Inode(nid)
		big, _, ok, err2 := r.Lookup(&root, "big")
		dir, err3 := r.Inode(big)
		file, _, ok2, err4 := r.Lookup(&dir, name)
		_, _, ok3, err5 := r.Lookup(&dir, "missing")
		i, err6 := r.Inode(file)
		_, err7 := r.DataOffset(&i)
		if !ok || !ok2 || ok3 || errors.Join(err, err2, err3, err4, err5, err6, err7) != nil {
			t.Error("lookups fail")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
