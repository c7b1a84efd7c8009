package contextdir

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

// open returns a context with files: their contents, or "-> target" of a link.
func open(t *testing.T, files map[string]string, limits Limits) (*Dir, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, p)
		} else {
			err = os.WriteFile(p, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := Open(dir, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, dir
}

// list returns the archive of a selection as text.
func list(t *testing.T, s *Selection) (names []string) {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := range s.Sources {
		if err := s.WriteTar(w, &s.Sources[i], "", Attributes{UID: 7, GID: 8}); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || h.Uid != 7 || h.Gid != 8 {
			t.Errorf("%s: %v, owner %d:%d", h.Name, err, h.Uid, h.Gid)
		}
		names = append(names, fmt.Sprint(h.Name, h.Linkname, ":", string(text)))
	}
}

func TestSelect(t *testing.T) {
	d, _ := open(t, map[string]string{
		"a.txt": "a", "b.txt": "b", "src/x": "x", "src/deep/y": "y", "src/z.log": "z", "src/keep.log": "k", "src/link": "-> x", "to-src": "-> src",
		"secret/key": "s", "secret/open": "o", ".dockerignore": "# comment\n**/*.log\n!src/keep.log\nsecret\n!secret/open\n",
	}, Limits{})
	if err := d.ReadIgnore("Dockerfile.dockerignore", ".dockerignore"); err != nil {
		t.Fatal(err)
	}
	src := []string{"deep/:", "deep/y:y", "keep.log:k", "linkx:", "x:x"}
	for patterns, want := range map[string][]string{
		"a.txt": {"a.txt:a"}, "*.txt": {"a.txt:a", "b.txt:b"}, "src": src, "to-src": src, "s*/x": {"x:x"}, "src/*.log": {"keep.log:k"},
		"a.txt b.txt": {"a.txt:a", "b.txt:b"}, "secret": {"open:o"}, "secret/*": {"open:o"}, "secret/open": {"open:o"}, "src/link": {"link:x"},
	} {
		s, err := d.Select(t.Context(), strings.Fields(patterns))
		if err != nil {
			t.Errorf("%s: %v", patterns, err)
			continue
		}
		if got := list(t, s); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", patterns, got, want)
		}
	}
	for pattern, want := range map[string]string{"none": "not in the build context", "src/z.log": "excluded", "secret/key": "excluded", "x*": "matches no file", "../a": "leads out"} {
		if _, err := d.Select(t.Context(), []string{pattern}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// TestDigest changes files: their digest follows contents, modes and names, and no times.
func TestDigest(t *testing.T) {
	digest := func(change func(dir string)) string {
		d, dir := open(t, map[string]string{"d/a": "1", "d/b": "2"}, Limits{})
		if change != nil {
			change(dir)
		}
		s, err := d.Select(t.Context(), []string{"d"})
		if err != nil {
			t.Fatal(err)
		}
		return s.Digest()
	}
	before := digest(nil)
	if digest(func(dir string) { os.Chtimes(filepath.Join(dir, "d/a"), fsTime, fsTime) }) != before {
		t.Error("a time changes it")
	}
	for name, change := range map[string]func(dir string){
		"contents": func(dir string) { os.WriteFile(filepath.Join(dir, "d/a"), []byte("3"), 0o644) },
		"mode":     func(dir string) { os.Chmod(filepath.Join(dir, "d/a"), 0o755) },
		"name":     func(dir string) { os.Rename(filepath.Join(dir, "d/a"), filepath.Join(dir, "d/c")) },
		"file":     func(dir string) { os.WriteFile(filepath.Join(dir, "d/c"), nil, 0o644) },
		"link":     func(dir string) { os.Symlink("a", filepath.Join(dir, "d/c")) },
	} {
		if digest(change) == before {
			t.Errorf("%s does not change it", name)
		}
	}
}

// TestHostile has contexts of a stranger: no file of the host is read.
func TestHostile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, dir := open(t, map[string]string{
		"absolute": "-> " + outside, "up": "-> ../../../../../../../../etc/passwd", "dir": "-> /etc", "in/link": "-> " + outside, "Dockerfile": "-> /etc/passwd",
	}, Limits{})
	for _, name := range []string{"absolute", "up", "dir", "dir/passwd", "../secret", "in/../../secret"} {
		if _, err := d.Select(t.Context(), []string{name}); api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text, err := d.Text("Dockerfile"); api.CodeOf(err) != api.CodeForbidden {
		t.Errorf("the Dockerfile is a link outside: %q, %v", text, err)
	}
	s, err := d.Select(t.Context(), []string{"in"})
	if err != nil {
		t.Fatal(err)
	}
	if got := list(t, s); !slices.Equal(got, []string{"link" + outside + ":"}) {
		t.Errorf("a link in a directory is copied as a link: %q", got)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "in", "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Select(t.Context(), []string{"in"}); api.CodeOf(err) != api.CodeUnsupported {
		t.Errorf("a FIFO: %v", err)
	}
	if _, err := d.Text("in/fifo"); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a FIFO as a text: %v", err)
	}
	if _, err := d.Text("missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing text: %v", err)
	}
}

func TestLimits(t *testing.T) {
	d, _ := open(t, map[string]string{"d/a": "12", "d/b": "34", "d/c": "5"}, Limits{Files: 2})
	if _, err := d.Select(t.Context(), []string{"d"}); api.CodeOf(err) != api.CodeLimit {
		t.Errorf("three files of two: %v", err)
	}
	d, _ = open(t, map[string]string{"a": "123", "big": strings.Repeat("x", maxText+1)}, Limits{Bytes: 2})
	if _, err := d.Select(t.Context(), []string{"a"}); api.CodeOf(err) != api.CodeLimit {
		t.Errorf("three bytes of two: %v", err)
	}
	if _, err := d.Text("big"); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a large Dockerfile: %v", err)
	}
	d, dir := open(t, map[string]string{"a": "123"}, Limits{})
	s, err := d.Select(t.Context(), []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("456"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteTar(tar.NewWriter(io.Discard), &s.Sources[0], "", Attributes{}); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("a file that changed: %v", err)
	}
}

func TestUnpack(t *testing.T) {
	var plain, zipped bytes.Buffer
	w := tar.NewWriter(&plain)
	if err := w.WriteHeader(&tar.Header{Name: "a", Size: 1, Mode: 0o644, Format: tar.FormatPAX, PAXRecords: map[string]string{"SCHILY.xattr.user.a": "b"}}); err != nil {
		t.Fatal(err)
	}
	w.Write([]byte("x"))
	w.Close()
	z := gzip.NewWriter(&zipped)
	z.Write(plain.Bytes())
	z.Close()
	for name, file := range map[string][]byte{"tar": plain.Bytes(), "gzip": zipped.Bytes()} {
		in, err := Unpack(bytes.NewReader(file))
		if err != nil || in == nil {
			t.Fatalf("%s: %v %v", name, in, err)
		}
		if all, err := io.ReadAll(in); err != nil || !bytes.Equal(all, plain.Bytes()) {
			t.Errorf("%s: %d bytes, %v", name, len(all), err)
		}
		in.Close()
	}
	var text bytes.Buffer
	z = gzip.NewWriter(&text)
	z.Write([]byte("no archive"))
	z.Close()
	for name, file := range map[string][]byte{"empty": nil, "text": []byte(strings.Repeat("text ", 200)), "gzip of text": text.Bytes(), "broken": {0x1f, 0x8b, 1}} {
		if in, err := Unpack(bytes.NewReader(file)); err != nil || in != nil {
			t.Errorf("%s is an archive: %v", name, err)
		}
	}
}

var fsTime = time.Unix(1_000_000, 0)
