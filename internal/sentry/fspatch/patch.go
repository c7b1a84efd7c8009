package fspatch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	gotime "time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	gverrors "gvisor.dev/gvisor/pkg/errors"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/rootfs"
	"ramet.dev/ramet/internal/sentry/stages"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/treediff"
)

// Tree is the root file system of a sandbox, whose files can be patched.
type Tree struct {
	k    *kern.Kernel
	gate *gate.Gate
	fs   *vfs.Filesystem
}

// New returns the root file system fs of a guest.
func New(k *kern.Kernel, g *gate.Gate, fs *vfs.Filesystem) *Tree { return &Tree{k: k, gate: g, fs: fs} }

// Patch makes the changes in file to the sandbox's files, all or none. Contents
// are written before, to files without names; while the guest stands still, only names and
// attributes change. Should gone report that the caller went
// away before that, nothing is done.
func (t *Tree) Patch(req *wire.Patch, file *os.File, gone func() bool) (*wire.Patched, error) {
	st := stages.Begin()
	ops, err := readPatch(req, file)
	if err != nil {
		return nil, err
	}
	// No freeze may come before the end: files without names would stay in it.
	t.gate.Lock()
	defer t.gate.Unlock()
	ctx := t.k.SupervisorContext()
	p := &patching{tree: t, ctx: ctx, gone: gone, creds: t.k.RootCredentials(), ops: ops, checked: map[string]bool{}, taken: map[string]string{}}
	if p.root, err = t.k.Root(ctx); err != nil {
		return nil, err
	}
	defer p.root.DecRef(ctx)
	if p.root.Mount().Filesystem() != t.fs {
		return nil, api.Errorf(api.CodeUnsupported, "the sandbox has changed its root to another file system")
	}
	defer p.close()
	if err := p.stage(file); err != nil {
		return nil, patchError(err)
	}
	st.Mark("write")
	// Most changes since the plan are looked at while the guest runs.
	var staged cowfs.State
	t.gate.Still(func() { staged, _, err = rootfs.Pin(t.fs, stagedID) })
	if err != nil {
		return nil, patchError(err)
	}
	defer rootfs.Release(t.fs, stagedID)
	if stale, err := p.stale(req.View, pages.Page(req.Root)); err != nil || stale != "" {
		return &wire.Patched{Stale: []byte(stale)}, patchError(err)
	}
	st.Mark("compare")
	if gone() {
		return nil, gate.ErrGone
	}
	t.gate.LockIO() // nor may the host side change files
	defer t.gate.UnlockIO()
	if !t.gate.Paused() {
		t.k.Pause()
		defer t.k.Unpause()
	}
	st.Mark("stop")
	began := gotime.Now()
	stale, err := p.stale(stagedID, staged.Root)
	rootfs.Release(t.fs, stagedID) // the changes need not leave its pages alone
	if err != nil || stale != "" {
		return &wire.Patched{Stale: []byte(stale)}, patchError(err)
	}
	err = patchError(p.apply())
	st.Mark("rename")
	return &wire.Patched{PauseMS: stages.Millis(gotime.Since(began)), Timed: st.Timed()}, err
}

// stagedID names the pin of the files as they are when all is ready.
const stagedID = "staged"

// readPatch decodes the changes.
func readPatch(req *wire.Patch, file *os.File) ([]wire.PatchOp, error) {
	if req.OpsAt < 0 || req.OpsSize < 0 || req.OpsSize > wire.MaxPatchBytes {
		return nil, api.Errorf(api.CodeLimit, "changes of %d bytes", req.OpsSize)
	}
	in := json.NewDecoder(bufio.NewReader(io.NewSectionReader(file, req.OpsAt, req.OpsSize)))
	var ops []wire.PatchOp
	for {
		var op wire.PatchOp
		err := in.Decode(&op)
		if errors.Is(err, io.EOF) {
			return ops, nil
		}
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "decode changes: %w", err)
		}
		if !cleanPath(op.Path) || len(op.From) > 0 && !cleanPath(op.From) {
			return nil, api.Errorf(api.CodeInvalid, "%q is not a clean absolute path", op.Path)
		}
		if ops = append(ops, op); len(ops) > wire.MaxPatchOps {
			return nil, api.Errorf(api.CodeLimit, "more than %d changes", wire.MaxPatchOps)
		}
	}
}

func cleanPath(p []byte) bool {
	return strings.HasPrefix(string(p), "/") && path.Clean(string(p)) == string(p)
}

// patchError gives errors of changing files a code.
func patchError(err error) error {
	var known *gverrors.Error
	if !errors.As(err, &known) {
		return err
	}
	switch {
	case linuxerr.Equals(linuxerr.ENOSPC, known):
		return api.Errorf(api.CodeNoSpace, "%w: the sandbox's disk has no room for the changes", err)
	case linuxerr.Equals(linuxerr.EROFS, known):
		return api.Errorf(api.CodeWrongState, "%w: the sandbox has made its root file system read-only", err)
	case linuxerr.Equals(linuxerr.EBUSY, known):
		return api.Errorf(api.CodeConflict, "%w: the sandbox has something mounted there", err)
	}
	return err
}

// patching is a Patch under way.
type patching struct {
	tree    *Tree
	ctx     context.Context
	gone    func() bool
	creds   *auth.Credentials
	root    vfs.VirtualDentry
	ops     []wire.PatchOp
	staged  []*vfs.FileDescription // regular files that will be made, in the order of ops
	reserve *vfs.FileDescription
	checked map[string]bool // directories that are not below a mount

	trash   string            // directory of files that were removed or taken away, made when it is needed
	removed int               // how much is in it
	taken   map[string]string // where files are that were taken away, by their paths
	undo    []func() error
}

func (p *patching) close() {
	for _, f := range append(p.staged, p.reserve) {
		if f != nil {
			f.DecRef(p.ctx)
		}
	}
}

// at returns where path is, without following a link at its end.
func (p *patching) at(path string) *vfs.PathOperation { return kern.LinkAt(p.root, path) }

const (
	// stagePiece is how much is copied at once, in bytes.
	stagePiece = 1 << 20
	// Space that is kept for undoing changes, in bytes: a leaf of the tree for each.
	undoRoom, undoRoomPerOp = 128 << 10, 2 << 10
)

// stage writes contents, and takes the space that undoing may need.
func (p *patching) stage(from *os.File) error {
	var err error
	if p.reserve, err = p.nameless(); err != nil {
		return err
	}
	if err := p.reserve.Allocate(p.ctx, 0, 0, uint64(undoRoom+undoRoomPerOp*len(p.ops))); err != nil {
		return err
	}
	buf := make([]byte, stagePiece)
	for i := range p.ops {
		op := &p.ops[i]
		if op.Kind != wire.PatchMake || op.Mode&linux.S_IFMT != linux.S_IFREG {
			continue
		}
		f, err := p.nameless()
		if err != nil {
			return err
		}
		p.staged = append(p.staged, f)
		if err := p.fill(f, op, from, buf); err != nil {
			return fmt.Errorf("write %s: %w", op.Path, err)
		}
	}
	return nil
}

func (p *patching) nameless() (*vfs.FileDescription, error) {
	return p.tree.k.VFS().OpenAt(p.ctx, p.creds, p.at("/"), &vfs.OpenOptions{Flags: linux.O_TMPFILE | linux.O_DIRECTORY | linux.O_RDWR, Mode: 0o600})
}

func (p *patching) fill(f *vfs.FileDescription, op *wire.PatchOp, from *os.File, buf []byte) error {
	for _, d := range op.Data {
		for done := int64(0); done < d.N; {
			if p.gone() { // nothing else can be done to the sandbox until this ends
				return gate.ErrGone
			}
			part := buf[:min(int64(len(buf)), d.N-done)]
			if _, err := from.ReadAt(part, d.At+done); err != nil {
				return fmt.Errorf("read contents: %w", err)
			}
			n, err := f.PWrite(p.ctx, usermem.BytesIOSequence(part), d.Offset+done, vfs.WriteOptions{})
			if err != nil {
				return err
			}
			done += n
		}
	}
	size := linux.Statx{Mask: linux.STATX_SIZE, Size: uint64(op.Size)}
	if err := f.SetStat(p.ctx, vfs.SetStatOptions{Stat: size}); err != nil {
		return err
	}
	if err := f.SetStat(p.ctx, vfs.SetStatOptions{Stat: ownerStat(op)}); err != nil {
		return err
	}
	if err := f.SetStat(p.ctx, vfs.SetStatOptions{Stat: permStat(op)}); err != nil {
		return err
	}
	for _, x := range op.Xattrs {
		if x.Value == nil {
			continue
		}
		if err := f.SetXattr(p.ctx, &vfs.SetXattrOptions{Name: string(x.Name), Value: string(*x.Value)}); err != nil {
			return err
		}
	}
	return nil
}

func ownerStat(op *wire.PatchOp) linux.Statx {
	return linux.Statx{Mask: linux.STATX_UID | linux.STATX_GID, UID: op.UID, GID: op.GID}
}

func permStat(op *wire.PatchOp) linux.Statx {
	return linux.Statx{Mask: linux.STATX_MODE, Mode: uint16(op.Mode &^ linux.S_IFMT)}
}

// stale returns a path that was changed since a pin, whose tree has the root, and
// that the changes are about, or "".
func (p *patching) stale(pin string, root pages.Page) (string, error) {
	changes, ok, err := since(p.tree.fs, pin, root)
	if errors.Is(err, cowfs.ErrLimit) {
		return "/", nil // more than can be looked at
	}
	if err != nil {
		return "", err
	}
	if !ok {
		return "", api.Errorf(api.CodeInvalid, "no view %q", pin)
	}
	if len(changes) == 0 {
		return "", nil
	}
	touched, above, emptied := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var taken []string
	for i := range p.ops {
		op := &p.ops[i]
		for _, at := range []string{string(op.Path), string(op.From)} {
			if at == "" {
				continue
			}
			touched[at] = true
			for dir := path.Dir(at); !above[dir]; dir = path.Dir(dir) {
				above[dir] = true
			}
		}
		switch op.Kind {
		case wire.PatchRemove:
			emptied[string(op.Path)] = true
		case wire.PatchTake:
			taken = append(taken, string(op.Path))
		}
	}
	for i := range changes {
		c := &changes[i]
		for _, at := range []string{c.Path, c.From} {
			moved := c.Kind != treediff.Modified || c.Differs&treediff.DiffersType != 0
			in := func(dir string) bool { return treediff.Below(at, dir) }
			if at != "" && (touched[at] || above[at] && moved || emptied[path.Dir(at)] || slices.ContainsFunc(taken, in)) {
				return at, nil
			}
		}
	}
	return "", nil
}
