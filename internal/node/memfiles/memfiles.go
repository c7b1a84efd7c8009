package memfiles

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
)

// Table holds the open memory files by name.
type Table struct {
	mu   sync.Mutex
	open map[string]*generation
}

type generation struct {
	file *os.File
	id   launch.FileID
	refs int
}

// Record is what is stored of a memory file: a daemon that starts compares the files
// that sentries hand it with these records.
type Record struct {
	Name string        `json:"name"`
	File launch.FileID `json:"file"`
}

// New returns a table without files.
func New() *Table { return &Table{open: map[string]*generation{}} }

// Add takes a reference on name. A name that is not known yet gets a duplicate of
// file. A name belongs to one file: another file is an error of CodeCorrupt.
func (t *Table) Add(name string, file *os.File) error {
	id, err := launch.IDOf(file)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if x, ok := t.open[name]; ok {
		if x.id != id {
			return api.Errorf(api.CodeCorrupt, "memory %q is not the file that it was", name)
		}
		x.refs++
		return nil
	}
	dup, err := launch.ReadOnly(file)
	if err != nil {
		return err
	}
	t.open[name] = &generation{file: dup, id: id, refs: 1}
	return nil
}

// Acquire takes a reference on each of names, or on none.
func (t *Table) Acquire(names []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range names {
		if t.open[n] == nil {
			return api.Errorf(api.CodeInternal, "memory file %s is not known", n)
		}
	}
	for _, n := range names {
		t.open[n].refs++
	}
	return nil
}

// Release gives up a reference on each of names.
func (t *Table) Release(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range names {
		x := t.open[n]
		if x.refs--; x.refs == 0 {
			x.file.Close()
			delete(t.open, n)
		}
	}
}

// Files returns the files of names. The caller holds a reference on each name.
func (t *Table) Files(names []string) ([]*os.File, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	files := make([]*os.File, len(names))
	for i, n := range names {
		x := t.open[n]
		if x == nil {
			return nil, fmt.Errorf("memory file %s is not open", n)
		}
		files[i] = x.file
	}
	return files, nil
}

// Records returns what is stored of names. The caller holds a reference on each name.
func (t *Table) Records(names []string) []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Record, len(names))
	for i, n := range names {
		list[i] = Record{Name: n, File: t.open[n].id}
	}
	return list
}

// MemorySizes returns the allocated bytes of the files that have memory, by name. The
// names of files of pages and of parts of snapshots have a slash.
func (t *Table) MemorySizes() map[string]int64 {
	return t.sizes(func(name string) bool { return !strings.Contains(name, "/") })
}

// Sizes returns the allocated bytes of each file of a sentry, by name. Parts of
// snapshots on disk are left out: they count with the snapshots.
func (t *Table) Sizes() map[string]int64 {
	return t.sizes(func(name string) bool {
		key, part, ok := strings.Cut(name, "/")
		return !ok || part == "files" && !api.IsID(api.KindSnapshot, key)
	})
}

func (t *Table) sizes(counts func(name string) bool) map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	sizes := map[string]int64{}
	for name, x := range t.open {
		if counts(name) {
			sizes[name] = launch.Allocated(x.file)
		}
	}
	return sizes
}
