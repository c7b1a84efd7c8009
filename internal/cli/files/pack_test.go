package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ramet.dev/ramet/api"
)

type entry struct {
	tar.Header
	data string
}

func archiveOf(t testing.TB, entries ...entry) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size = int64(len(e.data))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.data); err != nil {
			t.Fatal(err)
		}
	}
	return &b
}

// TestUnpackerStaysInside unpacks what a hostile sandbox could send.
func TestUnpackerStaysInside(t *testing.T) {
	link := func(name, to string) entry {
		return entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}}
	}
	file := func(name string) entry {
		return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o6755}, "evil"}
	}
	dir := entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "top/", Mode: 0o755}}
	for name, c := range map[string]struct {
		entries []entry
		code    api.Code // empty if only the outside must stay as it is
	}{
		"dots":              {[]entry{dir, file("top/../../victim")}, api.CodeHostile},
		"absolute":          {[]entry{file("/victim")}, api.CodeHostile},
		"through a link":    {[]entry{dir, link("top/l", "../.."), file("top/l/victim")}, ""},
		"over a link":       {[]entry{dir, link("top/victim", "../../victim"), file("top/victim")}, ""},
		"absolute link":     {[]entry{dir, link("top/l", "OUTSIDE"), file("top/l/victim")}, ""},
		"hard link of dots": {[]entry{dir, {Header: tar.Header{Typeflag: tar.TypeLink, Name: "top/h", Linkname: "top/../../victim"}}, file("top/h")}, api.CodeHostile},
		"hard link by link": {[]entry{dir, link("top/l", "../.."), {Header: tar.Header{Typeflag: tar.TypeLink, Name: "top/h", Linkname: "top/l/victim"}}}, ""},
		"mode by a link":    {[]entry{dir, link("top/d", "OUTSIDE"), {Header: tar.Header{Typeflag: tar.TypeDir, Name: "top/d/", Mode: 0}}}, ""},
		"the top is a link": {[]entry{link("top", "OUTSIDE"), file("top/victim")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			victim := filepath.Join(outside, "victim")
			if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			inside := filepath.Join(outside, "inside")
			if err := os.Mkdir(inside, 0o755); err != nil {
				t.Fatal(err)
			}
			for i := range c.entries {
				c.entries[i].Linkname = strings.ReplaceAll(c.entries[i].Linkname, "OUTSIDE", outside)
			}
			u, err := newUnpacker(inside, "new")
			if err != nil {
				t.Fatal(err)
			}
			defer u.close()
			err = u.all(archiveOf(t, c.entries...))
			if c.code != "" && api.CodeOf(err) != c.code {
				t.Errorf("error = %v", err)
			}
			if b, err := os.ReadFile(victim); err != nil || string(b) != "mine" {
				t.Errorf("the victim has %q, %v", b, err)
			}
			if st, err := os.Stat(outside); err != nil || st.Mode().Perm() == 0 {
				t.Errorf("the directory outside: %v, %v", st.Mode(), err)
			}
			if st, err := os.Stat(filepath.Join(inside, "new", "victim")); err == nil && st.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
				t.Errorf("mode = %v", st.Mode())
			}
		})
	}
}

// TestUnpackerLeavesWhatIsBeside unpacks archives one after the other to the
// same place, with links that do not leave the directory that it is in.
func TestUnpackerLeavesWhatIsBeside(t *testing.T) {
	of := func(kind byte, name, to string) entry {
		e := entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: to, Mode: 0o777}}
		if kind == tar.TypeReg {
			e.data = "evil"
		}
		return e
	}
	top := of(tar.TypeDir, "top/", "")
	toParent := of(tar.TypeSymlink, "top/l", "..")
	dirOverLink, fileInIt := of(tar.TypeDir, "top/l/", ""), of(tar.TypeReg, "top/l/victim", "")
	for name, c := range map[string]struct {
		archives [][]entry
		code     api.Code // of the last; empty if it is unpacked
	}{
		"a link becomes a directory":   {[][]entry{{top, toParent}, {top, dirOverLink, fileInIt}}, ""},
		"at once":                      {[][]entry{{top, toParent, dirOverLink, fileInIt}}, ""},
		"through a link":               {[][]entry{{top, toParent, fileInIt}}, api.CodeHostile},
		"through an earlier link":      {[][]entry{{top, toParent}, {top, fileInIt}}, api.CodeHostile},
		"through a link inside":        {[][]entry{{top, of(tar.TypeDir, "top/d/", ""), of(tar.TypeSymlink, "top/l", "d"), fileInIt}}, api.CodeHostile},
		"a directory through a link":   {[][]entry{{top, toParent, of(tar.TypeDir, "top/l/new/", "")}}, api.CodeHostile},
		"a link through a link":        {[][]entry{{top, toParent, of(tar.TypeSymlink, "top/l/victim", "new")}}, api.CodeHostile},
		"a hard link through a link":   {[][]entry{{top, toParent, of(tar.TypeLink, "top/h", "top/l/victim")}}, api.CodeHostile},
		"a file that becomes a link":   {[][]entry{{top, of(tar.TypeReg, "top/l", ""), of(tar.TypeFifo, "top/l/p", ""), toParent, fileInIt}}, api.CodeHostile},
		"the top is a link":            {[][]entry{{of(tar.TypeSymlink, "top", "."), of(tar.TypeReg, "top/victim", "")}}, api.CodeHostile},
		"the top is an earlier link":   {[][]entry{{of(tar.TypeSymlink, "top", ".")}, {top, of(tar.TypeReg, "top/victim", "")}}, api.CodeConflict},
		"the top is a link and is not": {[][]entry{{of(tar.TypeSymlink, "top", "."), top, of(tar.TypeReg, "top/victim", "")}}, api.CodeConflict},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			victim := filepath.Join(dir, "victim")
			if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			var err error
			for i, archive := range c.archives {
				if err != nil {
					t.Fatalf("archive %d: %v", i, err)
				}
				u, openErr := newUnpacker(dir, "new")
				if openErr != nil {
					t.Fatal(openErr)
				}
				err = u.all(archiveOf(t, archive...))
				u.close()
			}
			if (err == nil) != (c.code == "") || err != nil && api.CodeOf(err) != c.code {
				t.Errorf("error = %v", err)
			}
			b, err := os.ReadFile(victim)
			if err != nil || string(b) != "mine" {
				t.Errorf("the victim has %q, %v", b, err)
			}
			if st, err := os.Lstat(victim); err != nil || st.Mode() != 0o600 || st.Sys().(*syscall.Stat_t).Nlink != 1 {
				t.Errorf("the victim is %+v, %v", st, err)
			}
			names, err := os.ReadDir(dir)
			if err != nil || len(names) != 2 {
				t.Errorf("there is %v, %v", names, err)
			}
			if c.code != "" {
				return
			}
			b, err = os.ReadFile(filepath.Join(dir, "new", "l", "victim"))
			if err != nil || string(b) != "evil" {
				t.Errorf("the copy has %q, %v", b, err)
			}
		})
	}
}

// A directory that is made gets its mode, at the top too; one that exists keeps
// the one that it has.
func TestUnpackerModesOfDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, mode := range []int64{0o750, 0o711} {
		u, err := newUnpacker(dir, "new")
		if err != nil {
			t.Fatal(err)
		}
		err = u.all(archiveOf(t,
			entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "top/", Mode: mode}},
			entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "top/sub/", Mode: mode}}))
		u.close()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"new", "new/sub"} {
			if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || st.Mode() != fs.ModeDir|0o750 {
				t.Errorf("%s is %v, %v", name, st.Mode(), err)
			}
		}
	}
}

func TestUnpackerSkipsDevices(t *testing.T) {
	u, err := newUnpacker(t.TempDir(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	err = u.all(archiveOf(t, entry{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "p"}}, entry{Header: tar.Header{Typeflag: tar.TypeChar, Name: "d"}}))
	if err != nil || len(u.skipped) != 2 || u.files != 0 {
		t.Errorf("skipped %q of %d, %v", u.skipped, u.files, err)
	}
}

// TestDevicesAreNotReplaced: who copies to /dev/null as root would have none afterwards.
func TestDevicesAreNotReplaced(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(pipe)
	if err != nil {
		t.Fatal(err)
	}
	if err := replaceable(pipe, st); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), pipe) {
		t.Errorf("a file: %v", err)
	}
	u, err := newUnpacker(dir, "pipe")
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	err = u.all(archiveOf(t, entry{tar.Header{Typeflag: tar.TypeReg, Name: "x", Mode: 0o600}, "data"}))
	if api.CodeOf(err) != api.CodeConflict {
		t.Errorf("an archive: %v", err)
	}
	if st, err := os.Lstat(pipe); err != nil || st.Mode()&fs.ModeNamedPipe == 0 {
		t.Errorf("what was there: %v, %v", st, err)
	}
}

// What is packed and unpacked again is the same, but for owners.
func TestPackRoundTrip(t *testing.T) {
	src := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"a": 0o640, "sub/b": 0o555, "sub/odd\n\xff": 0o600} {
		full := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(src, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(src, "a"), filepath.Join(src, "sub", "same")); err != nil {
		t.Fatal(err)
	}
	dst := t.TempDir()
	u, err := newUnpacker(dst, "out")
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	p := newPacker(src, "top", false)
	if err := u.all(p); err != nil {
		t.Fatal(err)
	}
	if skipped := p.close(); len(skipped) != 0 {
		t.Errorf("not packed: %q", skipped)
	}
	for name, mode := range map[string]fs.FileMode{"a": 0o640, "sub/b": 0o555, "sub/odd\n\xff": 0o600} {
		b, err := os.ReadFile(filepath.Join(dst, "out", name))
		if err != nil || string(b) != name {
			t.Errorf("%q has %q, %v", name, b, err)
		}
		if st, err := os.Stat(filepath.Join(dst, "out", name)); err == nil && st.Mode() != mode {
			t.Errorf("%q has mode %v", name, st.Mode())
		}
	}
	one, err := os.Stat(filepath.Join(dst, "out", "a"))
	if err != nil {
		t.Fatal(err)
	}
	if other, err := os.Stat(filepath.Join(dst, "out", "sub", "same")); err != nil || !os.SameFile(one, other) {
		t.Errorf("the names of one file are %v and %v, %v", one, other, err)
	}
	if to, err := os.Readlink(filepath.Join(dst, "out", "link")); to != "nowhere" {
		t.Errorf("link to %q, %v", to, err)
	}
}

// A file of zeros takes no room, however large a sandbox says it is.
func TestCopySparse(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 64 << 20
	nothing := io.LimitReader(zeroReader{}, size)
	if n, err := copySparse(f, io.MultiReader(strings.NewReader("x"), nothing), make([]byte, copyBuffer)); n != size+1 || err != nil {
		t.Errorf("copied %d, %v", n, err)
	}
	st, err := f.Stat()
	if err != nil || st.Size() != size+1 || st.Sys().(*syscall.Stat_t).Blocks > 8<<10 {
		t.Errorf("%d bytes in %d blocks, %v", st.Size(), st.Sys().(*syscall.Stat_t).Blocks, err)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestDestination(t *testing.T) {
	for _, c := range []struct {
		src           string
		isDir         bool
		dst           string
		exists, isDst bool
		to            string
		into          bool
		code          api.Code
	}{
		{"f", false, "/d", true, true, "/d/f", false, ""},
		{"f", false, "/d/", true, true, "/d/f", false, ""},
		{"f", false, "/g", true, false, "/g", false, ""},
		{"f", false, "/g", false, false, "/g", false, ""},
		{"f", false, "/g/", false, false, "", false, api.CodeNotFound},
		{"d", true, "/g", false, false, "/g", false, ""},
		{"d", true, "/g/", false, false, "/g", false, ""},
		{"d", true, "/g", true, true, "/g/d", false, ""},
		{"d/", true, "/g", true, true, "/g/d", false, ""},
		{"d/.", true, "/g", true, true, "/g", true, ""},
		{".", true, "/g", true, true, "/g", true, ""},
		{"d/.", true, "/g", false, false, "/g", false, ""},
		{"d", true, "/g", true, false, "", false, api.CodeConflict},
		{"/", true, "/g", true, true, "/g", true, ""},
	} {
		to, into, err := destination(c.src, c.isDir, c.dst, c.exists, c.isDst)
		if to != c.to || into != c.into || (err == nil) != (c.code == "") || err != nil && api.CodeOf(err) != c.code {
			t.Errorf("%+v: %q %t %v", c, to, into, err)
		}
	}
}

func TestParsePlace(t *testing.T) {
	for arg, want := range map[string]place{
		"f": {path: "f"}, "/a:b": {path: "/a:b"}, "./a:b": {path: "./a:b"}, "-": {path: "-"}, ":/x": {path: ":/x"}, "..:x": {path: "..:x"},
		"sbx:/f": {"sbx", "/f"}, "sbx:/a:b": {"sbx", "/a:b"},
	} {
		if got, err := parsePlace(arg); got != want || err != nil {
			t.Errorf("%q: %+v, %v", arg, got, err)
		}
	}
	if _, err := parsePlace("a:b"); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a relative path: %v", err)
	}
}

func FuzzUnpacker(f *testing.F) {
	var seed bytes.Buffer
	w := tar.NewWriter(&seed)
	if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "top/l", Linkname: "../.."}), w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "top/l/victim"}), w.Close()); err != nil {
		f.Fatal(err)
	}
	f.Add(seed.Bytes())
	beside, err := io.ReadAll(archiveOf(f,
		entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "top/"}},
		entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "top/l", Linkname: ".."}},
		entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "top/l/"}},
		entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "top/l/victim"}}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(beside)
	f.Fuzz(func(t *testing.T, archive []byte) {
		outside := t.TempDir()
		inside := filepath.Join(outside, "inside")
		if err := os.Mkdir(inside, 0o755); err != nil {
			t.Fatal(err)
		}
		u, err := newUnpacker(inside, "new")
		if err != nil {
			t.Fatal(err)
		}
		defer u.close()
		_ = u.all(bytes.NewReader(archive)) // most are broken
		names, err := os.ReadDir(outside)
		if err != nil || len(names) != 1 {
			t.Errorf("outside there is %v, %v", names, err)
		}
		names, err = os.ReadDir(inside)
		if err != nil || len(names) > 1 || len(names) == 1 && names[0].Name() != "new" {
			t.Errorf("beside the destination there is %v, %v", names, err)
		}
	})
}
