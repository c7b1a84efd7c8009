package cgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

// poolPattern names the groups of processes that wait for a sandbox. A group
// keeps this name when its process becomes a sandbox: renaming costs more than
// remembering.
var poolPattern = regexp.MustCompile(`^pool_[a-z0-9]{1,32}$`)

// Hierarchy makes groups. It is safe for concurrent use. A nil Hierarchy is of
// KindNone and has no other use.
type Hierarchy struct {
	kind   Kind
	parent string
	own    map[controller]string // directory of this process's own group; v2: the same for all

	mu       sync.Mutex
	prepared bool
}

// validID reports whether id may name a group: a sandbox's id, or "pool_" and 1
// to 32 of a-z and 0-9.
func validID(id string) bool {
	return api.IsID(api.KindSandbox, id) || poolPattern.MatchString(id)
}

// Kind returns the version of control groups that is used.
func (h *Hierarchy) Kind() Kind {
	if h == nil {
		return KindNone
	}
	return h.kind
}

// Prepare makes the directory of the groups. On v2 it switches the controllers
// on for it, and as a group with processes of its own cannot do that, it may
// have to move this process into a group beside them. New calls Prepare; calling
// it first shows the error early.
func (h *Hierarchy) Prepare() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.prepared {
		return nil
	}
	if h.kind == KindV2 {
		if err := h.enableOwnLocked(); err != nil {
			return err
		}
	}
	for _, dir := range h.parentDirs() {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("prepare control groups: %w", err)
		}
		if h.kind == KindV2 {
			if err := enableControllers(dir); err != nil {
				return fmt.Errorf("prepare control groups: %w", err)
			}
		}
	}
	h.prepared = true
	return nil
}

// New makes the group id. It fails with an error that is os.ErrExist if the group
// exists already, and leaves nothing behind when it fails.
func (h *Hierarchy) New(id string, limits Limits) (*Group, error) {
	if !validID(id) {
		return nil, api.Invalid("id", "%q cannot name a control group", id)
	}
	if err := limits.validate(); err != nil {
		return nil, err
	}
	if err := h.Prepare(); err != nil {
		return nil, err
	}
	g := &Group{h: h, id: id}
	for i, dir := range g.dirs() {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("make control group: %w", err), removeAll(g.dirs()[:i]))
		}
	}
	if limits != (Limits{}) {
		if err := g.SetLimits(limits); err != nil {
			return nil, errors.Join(err, removeAll(g.dirs()))
		}
	}
	return g, nil
}

// Open returns the group id, which another process made, or an error that is
// os.ErrNotExist.
func (h *Hierarchy) Open(id string) (*Group, error) {
	if !validID(id) {
		return nil, api.Invalid("id", "%q cannot name a control group", id)
	}
	g := &Group{h: h, id: id}
	for _, dir := range g.dirs() {
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("open control group: %w", err)
		}
	}
	return g, nil
}

// Sweep kills and deletes every group that keep refuses: leftovers of a daemon
// that crashed. Directories whose names are no group ids are left alone. It
// returns the ids of the deleted groups, and blocks until their processes are
// gone or ctx is done.
func (h *Hierarchy) Sweep(ctx context.Context, keep func(id string) bool) ([]string, error) {
	found := map[string]bool{}
	for _, dir := range h.parentDirs() {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("list control groups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && validID(e.Name()) {
				found[e.Name()] = true
			}
		}
	}
	var swept []string
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if keep(id) {
			continue
		}
		g := &Group{h: h, id: id}
		if err := errors.Join(g.Kill(), g.Delete(ctx)); err != nil {
			errs = append(errs, err)
			continue
		}
		swept = append(swept, id)
	}
	return swept, errors.Join(errs...)
}

// Close removes the directory of the groups if none is left in it. Groups that
// still exist are no error.
func (h *Hierarchy) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prepared = false
	err := removeAll(h.parentDirs())
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) {
		return nil
	}
	return err
}

// enableOwnLocked switches the controllers on below this process's own v2 group.
func (h *Hierarchy) enableOwnLocked() error {
	own := h.own[memory]
	err := enableControllers(own)
	if err == nil || !errors.Is(err, unix.EBUSY) {
		return err
	}
	// EBUSY: only a group without processes may have groups with controllers
	// below it (the kernel's "no internal processes" rule). So this process moves to a leaf.
	leaf := filepath.Join(own, daemonLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the daemon's control group: %w", err)
	}
	if err := writeFile(leaf, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
		return fmt.Errorf("move the daemon to its control group: %w", err)
	}
	err = enableControllers(own)
	if errors.Is(err, unix.EBUSY) {
		return &UnavailableError{Reason: "other processes live in our group " + own, Remedy: remedyV2}
	}
	return err
}

func enableControllers(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return fmt.Errorf("read enabled controllers: %w", err)
	}
	on := strings.Fields(string(b))
	var missing []string
	for _, c := range neededV2 {
		if !slices.Contains(on, string(c)) {
			missing = append(missing, "+"+string(c))
		}
	}
	if missing == nil {
		return nil
	}
	if err := writeFile(dir, "cgroup.subtree_control", strings.Join(missing, " ")); err != nil {
		return fmt.Errorf("enable controllers: %w", err)
	}
	return nil
}

// daemonLeaf is the group of daemons on v2, beside those of sandboxes. A service
// manager that starts a daemon again while sandboxes run must put it there at once:
// packaging/systemd says so by name.
const daemonLeaf = "ramet-daemon"

// ownDirs returns the distinct directories of this process's own group: one on v2, up to
// four on v1, where controllers may be mounted together.
func (h *Hierarchy) ownDirs() []string {
	return slices.Compact(slices.Sorted(maps.Values(h.own)))
}

func (h *Hierarchy) parentDirs() []string {
	dirs := h.ownDirs()
	for i := range dirs {
		dirs[i] = filepath.Join(dirs[i], h.parent)
	}
	return dirs
}

// removeAll removes empty groups. The files in a control group go with it.
func removeAll(dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
			errs = append(errs, &os.PathError{Op: "rmdir", Path: dir, Err: err})
		}
	}
	return errors.Join(errs...)
}

// writeFile sets a control file, which must exist: in the tree of a test, os.WriteFile
// would create a file with a misspelt name.
func writeFile(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
