package snapdir

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// Incoming is the directory of a snapshot whose pages come from elsewhere, until it is
// complete and in its place. It may be used by one goroutine at a time.
type Incoming struct {
	fs        hostfs.FS
	dir, temp string
	written   Written
	put       bool
}

// Receive begins the directory dir of a snapshot. The caller closes the result.
func Receive(dir string) (*Incoming, error) { return receive(hostfs.OS, dir) }

// receive is Receive on another file system.
func receive(fsys hostfs.FS, dir string) (*Incoming, error) {
	temp := dir + ".tmp"
	if err := fsys.Mkdir(temp, 0o700); err != nil {
		return nil, err
	}
	return &Incoming{fs: fsys, dir: dir, temp: temp, written: Written{Parts: map[string]Part{}}}, nil
}

// PartFile returns the name of a part that comes from elsewhere, of memory or files: no
// version of a snapshot is called like it.
func PartFile(memory bool, n int) string {
	k := kindFiles
	if memory {
		k = kindMemory
	}
	return fmt.Sprintf("%s.g%d", k, n)
}

// Part writes a part of a length. fill calls write for its pages, in the order of their
// places; pages that are zero are left out. The result has the digest of what was written.
func (in *Incoming) Part(name string, size int64, fill func(write func(offset int64, pages []byte) error) error) (Part, error) {
	f, err := in.fs.OpenFile(filepath.Join(in.temp, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return Part{}, err
	}
	defer f.Close()
	h := newPageHash()
	err = fill(func(offset int64, pages []byte) error {
		return eachRun(pages, offset, func(offset int64, run []byte) error {
			for at := 0; at < len(run); at += snapfile.PageSize {
				h.add(offset+int64(at), run[at:at+snapfile.PageSize])
			}
			_, err := f.WriteAt(run, offset)
			return err
		})
	})
	if err != nil {
		return Part{}, err
	}
	p := Part{Size: size, Digest: h.sum()}
	if err := f.Truncate(size); err != nil {
		return Part{}, err
	}
	if err := f.Sync(); err != nil {
		return Part{}, err
	}
	if p.Stamp, err = StampOf(f); err != nil {
		return Part{}, err
	}
	in.written.Parts[name] = p
	in.written.Size += allocated(f)
	return p, nil
}

// State writes the state of the snapshot. names are what its generations are called here,
// and sizes the lengths of their files.
func (in *Incoming) State(state *State, names []string, sizes []int64) error {
	snap := state.Snap
	if len(names) != len(snap.Generations) {
		return api.Errorf(api.CodeCorrupt, "the state refers to %d parts, the snapshot has %d", len(snap.Generations), len(names))
	}
	for i, need := range Sizes(snap) {
		if need > sizes[i] {
			return api.Errorf(api.CodeCorrupt, "the state refers to byte %d of part %d, which has %d", need, i, sizes[i])
		}
	}
	snap.Generations = names
	digest, size, err := writeState(in.fs, filepath.Join(in.temp, StateFile(0)), snap, state.Pages())
	in.written.Digest = digest
	in.written.Size += size
	return err
}

// Put gives the directory its place. needs are the snapshots whose parts the state refers to.
func (in *Incoming) Put(needs []string) (*Written, error) {
	if err := put(in.fs, in.temp, in.dir, 0); err != nil {
		return nil, err
	}
	in.put = true
	in.written.Needs = needs
	return &in.written, nil
}

// Close removes what was not put in its place.
func (in *Incoming) Close() {
	if !in.put {
		os.RemoveAll(in.temp)
	}
}

// Pages returns what was copied into the state because nothing else has it.
func (s *State) Pages() []byte {
	return s.data[snapfile.PagesOffset : snapfile.PagesOffset+s.Snap.Pages]
}

// IsMemory reports whether a generation on disk has memory, and not files.
func IsMemory(generation string) bool {
	_, file, _ := Owner(generation)
	name, _, _ := strings.Cut(file, ".")
	return name == string(kindMemory)
}

// PagesDigest reads a whole part and returns its digest.
func PagesDigest(ctx context.Context, f *os.File) (string, error) { return pagesDigest(ctx, f) }
