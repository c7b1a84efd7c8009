package stock

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/workload/fakedaemon"
)

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// archive returns a tar archive of headers; regular files have their name as
// content.
func archive(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestExportRoot(t *testing.T) {
	d := fakedaemon.New()
	content := archive(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "./bin/", Typeflag: tar.TypeDir, Mode: 0o555},
		tar.Header{Name: "./bin/sh", Typeflag: tar.TypeReg, Mode: 0o755, ModTime: time.Unix(1e9, 0)},
		tar.Header{Name: "./bin/bash", Typeflag: tar.TypeLink, Linkname: "./bin/sh"},
		tar.Header{Name: "./lib", Typeflag: tar.TypeSymlink, Linkname: "/usr/lib"},
		tar.Header{Name: "./dev", Typeflag: tar.TypeChar, Mode: 0o666},
	)
	code := 0
	d.ExecFunc = func(_ context.Context, _ string, _ api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error) {
		_, err := streams.Stdout.Write(content)
		return &api.ExecResult{OK: code == 0, ExitCode: code}, err
	}
	c := d.Connect(t)
	dir := t.TempDir()
	if err := ExportRoot(t.Context(), c, "sbx_aaaaaaaaaaaaaaaa", dir); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "bin/bash")); err != nil || string(text) != "./bin/sh" {
		t.Errorf("%q, %v", text, err)
	}
	if fi, err := os.Stat(filepath.Join(dir, "bin/sh")); err != nil || fi.Mode().Perm() != 0o755 || fi.ModTime().Unix() != 1e9 {
		t.Errorf("%v, %v", fi, err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "lib")); err != nil || to != "/usr/lib" {
		t.Errorf("%q, %v", to, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "dev")); !os.IsNotExist(err) {
		t.Errorf("a device was made: %v", err)
	}
	code = 2
	if err := ExportRoot(t.Context(), c, "sbx_aaaaaaaaaaaaaaaa", t.TempDir()); err == nil || !strings.Contains(err.Error(), "exit code 2") {
		t.Errorf("error is %v", err)
	}
	content = content[:700]
	code = 0
	if err := ExportRoot(t.Context(), c, "sbx_aaaaaaaaaaaaaaaa", t.TempDir()); err == nil {
		t.Error("an archive that is cut off was taken")
	}
}

func TestUnpackStaysBelowRoot(t *testing.T) {
	outside := t.TempDir()
	for name, headers := range map[string][]tar.Header{
		"dots":               {{Name: "../evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"absolute":           {{Name: outside + "/evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"through a link":     {{Name: "way", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "way/evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"hard link":          {{Name: "evil", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"}},
		"directory of dots":  {{Name: "a/../../evil", Typeflag: tar.TypeDir, Mode: 0o755}},
		"over what is there": {{Name: "a", Typeflag: tar.TypeSymlink, Linkname: outside + "/evil"}, {Name: "a", Typeflag: tar.TypeReg, Mode: 0o644}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "inner")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			if err := unpack(root, bytes.NewReader(archive(t, headers...))); err == nil {
				t.Error("it was unpacked")
			}
			if got := entries(t, outside); len(got) != 0 {
				t.Errorf("it made %v", got)
			}
			if got := entries(t, filepath.Dir(dir)); len(got) != 1 {
				t.Errorf("beside the root there are %v", got)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	if _, err := Version("/bin/sh"); err == nil {
		t.Error("a shell has the version of a Go program")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if v, err := Version(self); err != nil || v != "unknown" {
		t.Errorf("a program without gVisor: %q, %v", v, err)
	}
}
