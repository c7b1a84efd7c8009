package faultfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"ramet.dev/ramet/internal/storage/hostfs"
)

// replace makes a file at path in the ordinary way.
func replace(fs hostfs.FS, path, text string) error {
	f, err := fs.CreateTemp(filepath.Dir(path), ".tmp-")
	if err != nil {
		return err
	}
	defer fs.Remove(f.Name())
	defer f.Close()
	if _, err := f.Write([]byte(text)); err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(0o600), f.Truncate(int64(len(text))), f.Sync()); err != nil {
		return err
	}
	if err := fs.Rename(f.Name(), path); err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(path))
}

// TestSweep meets each operation once in each way, and the file is the old one or the new
// one after each.
func TestSweep(t *testing.T) {
	met := map[string][]Op{}
	Sweep(t, func(t *testing.T, c *Change) {
		path := filepath.Join(t.TempDir(), "file")
		if err := replace(c.FS, path, "old"); err != nil {
			t.Fatal(err)
		}
		err := c.Do(t, func() error { return replace(c.FS, path, "new") }, func(e Event) bool { return e.Op == Remove })
		text, readErr := os.ReadFile(path)
		if readErr != nil || string(text) != "old" && string(text) != "new" || err == nil && string(text) != "new" {
			t.Errorf("after %v the file has %q, %v", err, text, readErr)
		}
		if c.Failed != nil {
			met[c.fault.Name] = append(met[c.fault.Name], c.Failed.Op)
		}
		if err := replace(c.FS, path, "newer"); err != nil {
			t.Errorf("a later try: %v", err)
		}
	})
	for name, want := range map[string][]Op{
		IO.Name:         {Open, Write, Chmod, Truncate, Sync, Rename, SyncDir, Remove},
		NoSpace.Name:    {Open, Write, Sync, Rename, SyncDir},
		ShortWrite.Name: {Write},
	} {
		if !slices.Equal(met[name], want) {
			t.Errorf("%s befell %v, not %v", name, met[name], want)
		}
	}
}

// TestFaults looks at what a fault leaves: half of a write, and a disk that stays full.
func TestFaults(t *testing.T) {
	f := &FS{}
	path := filepath.Join(t.TempDir(), "file")
	of, err := f.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	f.Plan(ShortWrite, 2)
	if _, err := of.WriteAt([]byte("abcd"), 0); err != nil {
		t.Error(err)
	}
	if n, err := of.WriteAt([]byte("efgh"), 4); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("wrote %d, %v", n, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "abcdef" {
		t.Errorf("the file has %q, %v", text, err)
	}
	f.Plan(NoSpace, 1)
	for range 2 {
		if err := f.Mkdir(path+".d", 0o700); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("mkdir on a full disk: %v", err)
		}
	}
	if err := of.Truncate(0); err != nil {
		t.Errorf("truncate on a full disk: %v", err)
	}
	if e := f.Heal(); len(e) != 2 || e[0].Op != Mkdir || e[0].Path != path+".d" {
		t.Errorf("the operations are %+v", e)
	}
	if err := f.Mkdir(path+".d", 0o700); err != nil {
		t.Errorf("after it: %v", err)
	}
}
