package guestfs

import (
	"archive/tar"
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// wantLimit checks that err is of a limit that it names.
func wantLimit(t *testing.T, err error) {
	t.Helper()
	if api.CodeOf(err) != api.CodeLimit || !strings.Contains(err.Error(), " MiB") {
		t.Errorf("error is %v", err)
	}
}

// TestExtractedDirectoriesAreBounded has directories with long names and attributes.
func TestExtractedDirectoriesAreBounded(t *testing.T) {
	for name, add := range map[string]func(*madeDirs, int) error{
		"names": func(d *madeDirs, i int) error {
			return d.add(fmt.Sprint(strings.Repeat("n", 4000), i), &tar.Header{PAXRecords: map[string]string{"path": "x"}})
		},
		"attributes": func(d *madeDirs, i int) error {
			return d.add(fmt.Sprint(i), &tar.Header{PAXRecords: map[string]string{xattrRecord + "user.a": strings.Repeat("v", 1<<20)}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &madeDirs{}
			var err error
			for i := 0; err == nil && i <= maxDirBytes/4000; i++ {
				err = add(d, i)
			}
			wantLimit(t, err)
		})
	}
	d := &madeDirs{}
	for i := range 1000 { // what is no attribute is not kept
		if err := d.add(fmt.Sprint(i), &tar.Header{PAXRecords: map[string]string{"comment": strings.Repeat("v", 1<<20)}}); err != nil {
			t.Fatal(err)
		}
	}
	if h := d.list[0].header(); len(h.PAXRecords) != 0 || h.Typeflag != tar.TypeDir {
		t.Errorf("kept %+v", h)
	}
}

// TestArchivedLinksAreBounded has files with several names, of which some are found
// again.
func TestArchivedLinksAreBounded(t *testing.T) {
	l := &linkedFiles{names: map[fileID]linkedFile{}}
	name := strings.Repeat("n", 4000)
	for i := range uint64(2 * maxLinkedBytes / 4000) { // no name is left of them
		if err := l.add(fileID{ino: i}, name, 3); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if first, ok := l.find(fileID{ino: i}); !ok || first != name {
				t.Fatalf("found %q, %t", first, ok)
			}
		}
		if _, ok := l.find(fileID{ino: i}); ok {
			t.Fatal("it has a name too many")
		}
	}
	if err := l.add(fileID{ino: 1}, name, 1); err != nil || l.size != 0 {
		t.Errorf("a file with one name takes %d bytes, %v", l.size, err)
	}
	var err error
	for i := uint64(0); err == nil && i <= maxLinkedBytes/4000; i++ {
		err = l.add(fileID{ino: i}, name, 2)
	}
	wantLimit(t, err)
}

// TestWatchIsBounded watches and notes what has long names.
func TestWatchIsBounded(t *testing.T) {
	long := strings.Repeat("n", 4000)
	w := &watches{paths: map[int32]string{}, byPath: map[string]int32{}}
	wd := int32(0)
	for ; !w.full() && wd < maxWatches; wd++ {
		w.add(wd, fmt.Sprint(long, wd))
	}
	if n := len(w.paths); n > maxWatchedBytes/4000+1 {
		t.Errorf("%d long paths are watched", n)
	}
	w.add(wd, fmt.Sprint(long, 0)) // another directory has got the name
	for ; wd >= 0; wd-- {
		w.drop(wd)
	}
	if w.size != 0 || len(w.paths)+len(w.byPath) != 0 {
		t.Errorf("%d bytes are left of %d and %d watches", w.size, len(w.paths), len(w.byPath))
	}
	x := &Watcher{pending: map[string]*api.FileEvent{}}
	for i := 0; !x.lost && i < maxPending; i++ {
		x.note(fmt.Sprint(long, i), "created", false)
	}
	if n := len(x.pending); !x.lost || n > maxPendingBytes/4000 {
		t.Errorf("%d long paths wait", n)
	}
	told := 0
	for overflow := true; x.Pending(); overflow = false {
		out := x.Take()
		if out.Overflow != overflow {
			t.Errorf("after %d changes: overflow is %t", told, out.Overflow)
		}
		told += len(out.Changes)
	}
	if x.waiting != 0 || told == 0 {
		t.Errorf("%d changes were told, and %d bytes wait", told, x.waiting)
	}
}
