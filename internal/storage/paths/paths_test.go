package paths

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

func TestFind(t *testing.T) {
	home := func() (string, error) { return "/home/u", nil }
	for _, c := range []struct {
		name          string
		env           map[string]string
		uid           int
		runUser       bool
		runtime, data string
	}{
		{"xdg", map[string]string{"XDG_RUNTIME_DIR": "/run/user/7", "XDG_DATA_HOME": "/d"}, 7, true, "/run/user/7/ramet", "/d/ramet"},
		{"override", map[string]string{"XDG_RUNTIME_DIR": "/x", "XDG_DATA_HOME": "/d", EnvRuntimeDir: "/a/", EnvDataDir: "/b"}, 7, true, "/a", "/b"},
		{"run user exists", nil, 7, true, "/run/user/7/ramet", "/home/u/.local/share/ramet"},
		{"root", nil, 0, false, "/run/ramet", "/home/u/.local/share/ramet"},
		{"tmp", map[string]string{"TMPDIR": "/var/t"}, 7, false, "/var/t/ramet-7", "/home/u/.local/share/ramet"},
		{"relative is ignored", map[string]string{"XDG_RUNTIME_DIR": "x", "TMPDIR": "y", "XDG_DATA_HOME": "z"}, 7, false, "/tmp/ramet-7", "/home/u/.local/share/ramet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := find(lookups{
				getenv: func(k string) string { return c.env[k] },
				uid:    c.uid,
				isDir:  func(string) bool { return c.runUser },
				home:   home,
			})
			if err != nil {
				t.Fatal(err)
			}
			if p.RuntimeDir() != c.runtime || p.DataDir() != c.data {
				t.Errorf("find = %s, %s; want %s, %s", p.RuntimeDir(), p.DataDir(), c.runtime, c.data)
			}
		})
	}
}

func TestFindRefuses(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"relative runtime": {EnvRuntimeDir: "x", EnvDataDir: "/d"},
		"relative data":    {EnvRuntimeDir: "/x", EnvDataDir: "d"},
		"long socket path": {EnvRuntimeDir: "/" + strings.Repeat("x", 100), EnvDataDir: "/d"},
		"no home":          {EnvRuntimeDir: "/x"},
	} {
		_, err := find(lookups{
			getenv: func(k string) string { return env[k] },
			isDir:  isDir,
			home:   func() (string, error) { return "", errors.New("none") },
		})
		if api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%s: find = %v, want an invalid_argument error", name, err)
		}
	}
}

func TestIDsAreCheckedBeforeTheyBecomePaths(t *testing.T) {
	p, err := New("/run/x", "/data")
	if err != nil {
		t.Fatal(err)
	}
	id := api.NewID(api.KindSnapshot)
	if got, err := p.Snapshot(id); err != nil || got != filepath.Join(p.Snapshots(), id) {
		t.Errorf("path of %s = %q, %v", id, got, err)
	}
	for _, bad := range []string{"", "..", "../../etc", "name", id + "/..", "x" + id, api.NewID(api.KindSandbox)} {
		if got, err := p.Snapshot(bad); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("path of %q = %q, %v", bad, got, err)
		}
	}
}

func TestMakeRuntimeRefusesWhatOthersCanReach(t *testing.T) {
	dir := t.TempDir()
	p := Paths{runtimeDir: filepath.Join(dir, "a/b"), dataDir: filepath.Join(dir, "data"), private: true}
	if err := errors.Join(p.MakeRuntime(), p.MakeData(), p.MakeRuntime()); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(p.RuntimeDir()); err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatalf("runtime directory: %v, %v", fi.Mode(), err)
	}
	if err := os.Chmod(p.RuntimeDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := p.MakeRuntime(); api.CodeOf(err) != api.CodeIsolation {
		t.Errorf("readable directory: %v", err)
	}
	p.private = false
	if err := p.MakeRuntime(); err != nil {
		t.Errorf("readable directory that was chosen by hand: %v", err)
	}
	if err := os.Chmod(p.RuntimeDir(), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := p.MakeRuntime(); api.CodeOf(err) != api.CodeIsolation {
		t.Errorf("writable directory: %v", err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(p.DataDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := makeOwn(EnvRuntimeDir, link, 0o077); api.CodeOf(err) != api.CodeIsolation {
		t.Errorf("symbolic link: %v", err)
	}
}
