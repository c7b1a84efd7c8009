package contextdir

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/moby/patternmatcher"

	"ramet.dev/ramet/api"
)

// Selection is files of a context.
type Selection struct {
	Sources []Source
	dir     *Dir
	ctx     context.Context
	seen    map[string]bool
	files   int
	bytes   int64
	digest  hash.Hash
}

// Source is a file or directory that was named.
type Source struct {
	Name    string // its path in the context
	IsDir   bool
	entries []entry // of a directory, what is below it, the parents first
}

// entry is a file. Paths are relative to the source; that of a file that was named is its last element.
type entry struct {
	rel    string
	path   string // in the context
	info   fs.FileInfo
	target string // of a symbolic link
	digest string // of contents
}

// Select returns the files that patterns name. A pattern has no slash at its beginning; an empty one is the whole
// context. Without wildcards, the file must exist.
func (d *Dir) Select(ctx context.Context, patterns []string) (*Selection, error) {
	s := &Selection{dir: d, ctx: ctx, seen: map[string]bool{}, digest: sha256.New()}
	for _, pattern := range patterns {
		names := []string{pattern}
		if hasMeta(pattern) {
			var err error
			if names, err = d.glob(ctx, pattern); err != nil {
				return nil, err
			}
		}
		if len(names) == 0 {
			return nil, api.Errorf(api.CodeNotFound, "%q matches no file of the build context", pattern)
		}
		for _, name := range names {
			if err := s.add(name); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

// Digest names the contents, modes and relative paths of all files.
func (s *Selection) Digest() string { return hex.EncodeToString(s.digest.Sum(nil)) }

// glob returns the paths that match a pattern, sorted.
func (d *Dir) glob(ctx context.Context, pattern string) (found []string, err error) {
	depth := strings.Count(pattern, "/")
	var walk func(dir string, parent patternmatcher.MatchInfo, level int) error
	walk = func(dir string, parent patternmatcher.MatchInfo, level int) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := d.children(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			selected, above := matches(pattern, name)
			if !selected && !above {
				continue
			}
			ignored, info, err := d.ignored(name, parent)
			switch {
			case err != nil:
				return err
			case selected && (!ignored || e.IsDir() && d.entersIgnored()):
				found = append(found, name)
			case above && e.IsDir() && level < depth && (!ignored || d.entersIgnored()):
				if err := walk(name, info, level+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err = walk("", patternmatcher.MatchInfo{}, 0)
	slices.Sort(found)
	return found, err
}

// add adds a source that was named. A symbolic link is followed within the context.
func (s *Selection) add(named string) error {
	name, err := s.dir.resolve(named)
	if err != nil {
		return err
	}
	ignored, match, err := s.dir.ignoredPath(name)
	if err != nil {
		return api.Invalid("context", ".dockerignore: %w", err)
	}
	info, err := s.dir.root.Stat(local(name))
	if err != nil {
		return contextError(name, err)
	}
	if ignored && (!info.IsDir() || !s.dir.entersIgnored()) {
		return api.Errorf(api.CodeNotFound, "%q is excluded from the build context by .dockerignore", named)
	}
	source := Source{Name: name, IsDir: info.IsDir()}
	s.note("source", source.IsDir, len(s.Sources))
	if source.IsDir {
		err = s.walk(&source, name, "", match)
	} else {
		err = s.entry(&source, name, path.Base(named), info)
	}
	s.Sources = append(s.Sources, source)
	return err
}

// walk adds what is below a directory.
func (s *Selection) walk(source *Source, dir, rel string, parent patternmatcher.MatchInfo) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	entries, err := s.dir.children(dir)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		name, below := path.Join(dir, e.Name()), path.Join(rel, e.Name())
		ignored, match, err := s.dir.ignored(name, parent)
		if err != nil {
			return api.Invalid("context", ".dockerignore: %w", err)
		}
		if ignored && !(e.IsDir() && s.dir.entersIgnored()) {
			continue
		}
		info, err := s.dir.root.Lstat(local(name))
		if err != nil {
			return contextError(name, err)
		}
		if !ignored {
			if err := s.entry(source, name, below, info); err != nil {
				return err
			}
		}
		if info.IsDir() {
			if err := s.walk(source, name, below, match); err != nil {
				return err
			}
		}
	}
	return nil
}

// entry adds a file of a source. Sockets are left out.
func (s *Selection) entry(source *Source, name, rel string, info fs.FileInfo) (err error) {
	e := entry{rel: rel, path: name, info: info}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		if !s.seen[name] {
			s.seen[name] = true
			if s.bytes += info.Size(); s.bytes > s.dir.limits.Bytes {
				return api.Errorf(api.CodeLimit, "the files have more than %d MiB: exclude some with .dockerignore", s.dir.limits.Bytes>>20)
			}
		}
		if e.digest, err = s.dir.contents(s.ctx, name); err != nil {
			return err
		}
	case mode.IsDir():
	case mode&fs.ModeSymlink != 0:
		if e.target, err = s.dir.root.Readlink(local(name)); err != nil {
			return contextError(name, err)
		}
	case mode&fs.ModeSocket != 0:
		return nil
	default:
		return api.Errorf(api.CodeUnsupported, "%q is a device or FIFO: exclude it with .dockerignore", name)
	}
	if s.files++; s.files > s.dir.limits.Files {
		return s.dir.tooMany()
	}
	s.note(e.rel, tarMode(info), e.target, e.digest)
	source.entries = append(source.entries, e)
	return nil
}

// note adds to the digest.
func (s *Selection) note(of ...any) {
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // texts and numbers
	}
	s.digest.Write(append(text, '\n'))
}

// contents returns the digest of a regular file.
func (d *Dir) contents(ctx context.Context, name string) (string, error) {
	if digest, ok := d.digests[name]; ok {
		return digest, nil
	}
	f, err := d.open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, &interruptible{ctx, io.LimitReader(f, d.limits.Bytes)}); err != nil {
		return "", fmt.Errorf("read build context: %w", err)
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	d.digests[name] = digest
	return digest, nil
}

// interruptible is a reader that ends with its context.
type interruptible struct {
	ctx context.Context
	io.Reader
}

func (r *interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// Attributes change the files of an archive.
type Attributes struct {
	UID, GID int
	Mode     *uint32 // of regular files and directories; nil for their own
}

// Apply sets the fields of a header.
func (a *Attributes) Apply(h *tar.Header) {
	h.Uid, h.Gid, h.Uname, h.Gname = a.UID, a.GID, "", ""
	if a.Mode != nil && h.Typeflag != tar.TypeSymlink {
		h.Mode = int64(*a.Mode)
	}
}

func tarMode(info fs.FileInfo) int64 {
	mode := int64(info.Mode().Perm())
	for bit, set := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if info.Mode()&bit != 0 {
			mode |= set
		}
	}
	return mode
}

// WriteTar writes the files of a source to an archive. rename, if not empty, is the name of a file that was named.
func (s *Selection) WriteTar(to *tar.Writer, source *Source, rename string, attributes Attributes) error {
	for _, e := range source.entries {
		name := e.rel
		if !source.IsDir && rename != "" {
			name = rename
		}
		h := &tar.Header{Name: name, Mode: tarMode(e.info), ModTime: e.info.ModTime(), Format: tar.FormatPAX}
		switch {
		case e.digest != "":
			h.Typeflag, h.Size = tar.TypeReg, e.info.Size()
		case e.target != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.target
		default:
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		}
		attributes.Apply(h)
		if err := to.WriteHeader(h); err != nil {
			return fmt.Errorf("send %s: %w", e.path, err)
		}
		if e.digest != "" {
			if err := s.copyFile(to, &e); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyFile writes the contents of a file, which must be those that the digest was made of.
func (s *Selection) copyFile(to io.Writer, e *entry) error {
	f, err := s.dir.open(e.path)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), &interruptible{s.ctx, io.LimitReader(f, e.info.Size())})
	if err != nil {
		return fmt.Errorf("send %s: %w", e.path, err)
	}
	if n != e.info.Size() || hex.EncodeToString(sum.Sum(nil)) != e.digest {
		return api.Errorf(api.CodeConflict, "%q changed during the build: run the build again", e.path)
	}
	return nil
}

// OpenFile opens a file that was named, for reading.
func (s *Selection) OpenFile(source *Source) (io.ReadCloser, error) { return s.dir.open(source.Name) }
