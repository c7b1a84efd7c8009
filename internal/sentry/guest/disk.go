package guest

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/cow"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/rootfs"
	"ramet.dev/ramet/internal/sentry/stages"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// disk is the files that the root file system consists of: the image, the files of ancestors
// with pages that the sandbox inherited, and a file of its own.
type disk struct {
	own       *os.File
	image     *os.File
	data      []byte // the image, mapped
	inherited []pages.Segment
	names     []string // of the generations that inherited are in
	fs        *vfs.Filesystem
}

// newDisk takes over image. segments say where in gens the inherited pages are.
func (b *Blank) newDisk(image *os.File, segments []snapfile.FileSegment, gens []cow.Generation) (*disk, error) {
	data, err := kern.MapFile(image)
	if err != nil {
		return nil, fmt.Errorf("map image: %w", err)
	}
	d := &disk{own: b.files, image: image, data: data}
	for _, s := range segments {
		g := gens[s.Gen]
		d.inherited = append(d.inherited, pages.Segment{Start: pages.Page(s.Start), End: pages.Page(s.End), File: g.File})
		d.names = append(d.names, g.Name)
	}
	return d, nil
}

// open opens the tree that state describes, once.
func (d *disk) open(state cowfs.State) (*rootfs.Source, error) {
	base := pages.Page(1)
	if n := len(d.inherited); n > 0 {
		base = d.inherited[n-1].End
	}
	store, err := pages.NewStore(d.own, base, d.inherited)
	if err != nil {
		return nil, api.Errorf(api.CodeCorrupt, "open files: %w", err)
	}
	tree, err := cowfs.Open(store, d.data, state)
	if err != nil {
		return nil, api.Errorf(api.CodeCorrupt, "open files: %w", err)
	}
	return &rootfs.Source{Tree: tree, Own: d.own, Image: d.image, Bytes: d.data}, nil
}

// find notes the file system that was restored. It is the only one of its kind:
// the guest cannot mount another.
func (d *disk) find(k *kernel.Kernel) error {
	ctx := k.SupervisorContext()
	for _, fs := range k.VFS().GetFilesystems() {
		if fs.FilesystemType().Name() == rootfs.Name {
			d.fs = fs
		}
		fs.DecRef(ctx)
	}
	if d.fs == nil {
		return api.Errorf(api.CodeCorrupt, "saved state has no root file system")
	}
	return nil
}

// pin keeps the files as they are until release. It returns where they are, and
// gens with those that they are in, of which self is the sandbox's own.
func (d *disk) pin(id, self string, gens []string) (snapfile.Files, []string, error) {
	state, segments, err := rootfs.Pin(d.fs, id)
	if errors.Is(err, pages.ErrNoSpace) {
		return snapfile.Files{}, nil, api.Errorf(api.CodeNoSpace, "write what changed of files: %w", err)
	}
	if err != nil {
		return snapfile.Files{}, nil, fmt.Errorf("pin files: %w", err)
	}
	f := snapfile.Files{Root: uint64(state.Root), Segments: []snapfile.FileSegment{}}
	gens = slices.Clone(gens)
	for i, s := range segments {
		name := self
		if i < len(d.names) {
			name = d.names[i]
		}
		n := slices.Index(gens, name)
		if n < 0 {
			n = len(gens)
			gens = append(gens, name)
		}
		f.Segments = append(f.Segments, snapfile.FileSegment{Start: uint64(s.Start), End: uint64(s.End), Gen: uint32(n)})
	}
	return f, gens, nil
}

func (d *disk) release(id string) { rootfs.Release(d.fs, id) }

// used returns the bytes that count for the limit.
func (d *disk) used() int64 { return rootfs.Tree(d.fs).Space().Used * pages.PageSize }

func (d *disk) pins() []string { return rootfs.Tree(d.fs).Pins() }

// View keeps the files as they are for a reader, until Release.
func (g *Guest) View(req *wire.View, gone func() bool) (*wire.Viewed, error) {
	st := stages.Begin()
	g.Gate.Lock()
	defer g.Gate.Unlock()
	if gone() {
		return nil, gate.ErrGone
	}
	st.Mark("wait")
	var f snapfile.Files
	var gens []string
	var err error
	// A page may be mapped by a task that may write to it until its mappings are taken away:
	// a reader with a copy of the page would miss what is stored until then.
	g.Gate.Still(func() { f, gens, err = g.disk.pin(req.ID, req.SelfFiles, nil) })
	if err != nil {
		return nil, err
	}
	st.Mark("pin")
	return &wire.Viewed{Files: f, Generations: gens, Timed: st.Timed()}, nil
}
