package engines

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
	"ramet.dev/ramet/internal/storage/hostfs/faultfs"
)

// program writes a program that is none.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, dir, name, executable string, fsys hostfs.FS) *Engines {
	t.Helper()
	e, err := Open(Config{Dir: dir, Own: Program{Name: name, Build: name + " build"}, Executable: executable, Log: slog.New(slog.DiscardHandler), FS: fsys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// TestEnginesOutliveTheirVersion keeps the program of one version for the next, as long as
// something needs it.
func TestEnginesOutliveTheirVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "engines")
	one := open(t, dir, "one", program(t, "first"), nil)
	if !one.Knows("one") || !one.Knows("") || one.Knows("two") {
		t.Error("it does not know itself alone")
	}
	for range 2 {
		if err := one.Keep(); err != nil {
			t.Fatal(err)
		}
	}
	two := open(t, dir, "two", program(t, "second"), nil)
	if !two.Knows("one") || !two.Knows("two") {
		t.Error("the program of the version before is not known")
	}
	digest := two.kept["one"].Digest
	f, err := two.sealed(digest)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(io.NewSectionReader(f, 0, 100)); err != nil || !bytes.Equal(b, []byte("first")) || f.Fd() < lowestFD {
		t.Errorf("descriptor %d has %q, %v", f.Fd(), b, err)
	}
	_, err = two.Launcher(t.Context(), "three")
	if api.CodeOf(err) != api.CodeUnsupported {
		t.Errorf("an engine that is not here: %v", err)
	}
	if err := two.Sweep(func(name string) bool { return name == "one" }); err != nil || !two.Knows("one") {
		t.Errorf("what is needed was removed: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, digest), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := two.sealed(digest); api.CodeOf(err) != api.CodeCorrupt {
		t.Errorf("a changed program: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, tempPrefix+"1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := two.Sweep(func(string) bool { return false }); err != nil || two.Knows("one") {
		t.Errorf("what nothing needs is left: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestFaultsOfKeep lets each operation of keeping a program fail: the engine is whole or not
// known to the next daemon, which removes what is left.
func TestFaultsOfKeep(t *testing.T) {
	faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
		dir := filepath.Join(t.TempDir(), "engines")
		e := open(t, dir, "one", program(t, "first"), c.FS)
		err := c.Do(t, e.Keep, nil)
		next := open(t, dir, "two", program(t, "second"), nil)
		if digest := next.kept["one"].Digest; digest != "" {
			f, ferr := next.sealed(digest)
			if ferr != nil {
				t.Fatal(ferr)
			}
			f.Close()
		} else if err == nil {
			t.Error("it was kept, and is not there")
		}
		if err := next.Sweep(func(string) bool { return false }); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
			t.Errorf("left over: %v, %v", left, err)
		}
	})
}
