package held

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"ramet.dev/ramet/internal/storage/hostfs"
	"ramet.dev/ramet/internal/storage/hostfs/faultfs"
)

// TestFaults makes each operation of the disk fail in each way.
func TestFaults(t *testing.T) {
	t.Run("add", func(t *testing.T) {
		faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
			dir, s := filepath.Join(t.TempDir(), "held"), &server{}
			q := openQueue(t, c.FS, dir, s, nil)
			err := c.Do(t, func() error {
				_, err := q.Add(origin, request(t, "POST", "body"))
				return err
			}, nil)
			next := openQueue(t, hostfs.OS, dir, s, nil)
			if n := len(next.List("")); err == nil && n != 1 || err != nil && n != 0 && c.Fault() != faultfs.NoSpace.Name && c.Failed.Op != faultfs.Remove {
				t.Errorf("after %v %d are held", err, n)
			}
			if err != nil && len(q.room.use) != 0 {
				t.Errorf("after %v %v are in use", err, q.room.use)
			}
		})
	})
	t.Run("release", func(t *testing.T) {
		faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
			dir, s := filepath.Join(t.TempDir(), "held"), &server{}
			q := openQueue(t, c.FS, dir, s, nil)
			id := hold(t, q, origin)
			_ = c.Do(t, func() error {
				_, err := q.Release(t.Context(), id, false)
				return err
			}, nil)
			first := len(s.take())
			now := state(t, q, id)
			next := openQueue(t, hostfs.OS, dir, s, nil)
			then := state(t, next, id)
			if err := next.Resume(t.Context(), every); err != nil {
				t.Error(err)
			}
			after := state(t, next, id)
			times := first + len(s.take())
			if times > 1 || times == 0 && after == Sent || times == 1 && after != Sent && after != Unknown || times == 0 && after != Waiting && after != Unknown && after != Released {
				t.Errorf("it was sent %d times; it was %s, after opening %s, after resuming %s", times, now, then, after)
			}
			if now == Sending {
				t.Error("nobody sends it, and it is being sent")
			}
		})
	})
	t.Run("drop", func(t *testing.T) {
		faultfs.Sweep(t, func(t *testing.T, c *faultfs.Change) {
			dir, s := filepath.Join(t.TempDir(), "held"), &server{}
			q := openQueue(t, c.FS, dir, s, nil)
			id := hold(t, q, origin)
			err := c.Do(t, func() error { return q.Drop(id) }, nil)
			next := openQueue(t, hostfs.OS, dir, s, nil)
			if st := state(t, next, id); st != Dropped && (err == nil || st != Waiting) {
				t.Errorf("after %v it is %s", err, st)
			}
		})
	})
}

// dying is a file system of a process that is killed before an operation: that and all later
// ones do nothing.
type dying struct {
	hostfs.FS
	mu   sync.Mutex
	left int
}

var errKilled = errors.New("killed")

func (d *dying) alive() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == 0 {
		return errKilled
	}
	d.left--
	return nil
}

// OpenFile implements hostfs.FS.
func (d *dying) OpenFile(name string, flag int, mode os.FileMode) (hostfs.File, error) {
	if err := d.alive(); err != nil {
		return nil, err
	}
	f, err := d.FS.OpenFile(name, flag, mode)
	return dyingFile{f, d}, err
}

// CreateTemp implements hostfs.FS.
func (d *dying) CreateTemp(dir, pattern string) (hostfs.File, error) {
	if err := d.alive(); err != nil {
		return nil, err
	}
	f, err := d.FS.CreateTemp(dir, pattern)
	return dyingFile{f, d}, err
}

// Rename implements hostfs.FS.
func (d *dying) Rename(from, to string) error {
	if err := d.alive(); err != nil {
		return err
	}
	return d.FS.Rename(from, to)
}

// Remove implements hostfs.FS.
func (d *dying) Remove(name string) error {
	if err := d.alive(); err != nil {
		return err
	}
	return d.FS.Remove(name)
}

// SyncDir implements hostfs.FS.
func (d *dying) SyncDir(name string) error {
	if err := d.alive(); err != nil {
		return err
	}
	return d.FS.SyncDir(name)
}

type dyingFile struct {
	hostfs.File
	d *dying
}

// Write implements hostfs.File.
func (f dyingFile) Write(b []byte) (int, error) {
	if err := f.d.alive(); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

// Sync implements hostfs.File.
func (f dyingFile) Sync() error {
	if err := f.d.alive(); err != nil {
		return err
	}
	return f.File.Sync()
}

// TestKilledAtEachStep kills before each operation of adding and releasing, and looks at
// what the next process does.
func TestKilledAtEachStep(t *testing.T) {
	outcomes := map[State]int{}
	for n := 0; ; n++ {
		dir, s := filepath.Join(t.TempDir(), "held"), &server{}
		d := &dying{FS: hostfs.OS, left: n}
		q, err := Open(d, dir, s, DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		r, addErr := q.Add(origin, request(t, "POST", "body"))
		var releaseErr error
		if addErr == nil {
			_, releaseErr = q.Release(t.Context(), r.ID, false)
		}
		q.Close()
		next := openQueue(t, hostfs.OS, dir, s, nil)
		if err := next.Resume(t.Context(), every); err != nil {
			t.Error(err)
		}
		times := len(s.take())
		list := next.List("")
		switch {
		case times > 1:
			t.Errorf("step %d: it was sent %d times", n, times)
		case addErr == nil && len(list) != 1:
			t.Errorf("step %d: it is lost", n)
		case len(list) == 1 && list[0].State == Sent && times != 1, len(list) == 1 && list[0].State == Waiting && times != 0:
			t.Errorf("step %d: it is %s and was sent %d times", n, list[0].State, times)
		case len(list) == 1 && list[0].State != Sent && list[0].State != Waiting && list[0].State != Unknown:
			t.Errorf("step %d: it is %s", n, list[0].State)
		}
		if len(list) == 1 {
			outcomes[list[0].State]++
		}
		if addErr == nil && releaseErr == nil {
			break
		}
		if n > 200 {
			t.Fatal("it never ends")
		}
	}
	if got := slices.Sorted(maps.Keys(outcomes)); !slices.Equal(got, []State{Sent, Unknown, Waiting}) {
		t.Errorf("it ended as %v", outcomes)
	}
}
