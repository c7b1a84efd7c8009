package contextdir

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

// Limits bound the files of a context. A zero field stands for its default.
type Limits struct {
	Files int   // files, directories and links that one instruction selects
	Bytes int64 // their contents
}

const (
	defaultFiles = 500_000
	defaultBytes = 8 << 30
	// maxText bounds a Dockerfile and .dockerignore, in bytes.
	maxText = 1 << 20
)

// Dir is a build context. It is not safe for concurrent use.
type Dir struct {
	root    *os.Root
	limits  Limits
	ignore  *patternmatcher.PatternMatcher // nil for none
	digests map[string]string              // of contents, by path
}

// Open opens a context. The caller closes it.
func Open(dir string, limits Limits) (*Dir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, api.Invalid("context", "%w", err)
	}
	if limits.Files == 0 {
		limits.Files = defaultFiles
	}
	if limits.Bytes == 0 {
		limits.Bytes = defaultBytes
	}
	return &Dir{root: root, limits: limits, digests: map[string]string{}}, nil
}

// Close closes the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Text returns a small file of the context.
func (d *Dir) Text(name string) ([]byte, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadText(f, name)
}

// ReadText reads a Dockerfile or a file of patterns, within a bound.
func ReadText(from io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxText+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxText {
		return nil, api.Invalid("file", "%s has more than %d KiB", name, maxText>>10)
	}
	return text, nil
}

// ReadIgnore takes the patterns of files that are not part of the context from the first of names that exists.
func (d *Dir) ReadIgnore(names ...string) error {
	for _, name := range names {
		text, err := d.Text(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		return d.Ignore(name, text)
	}
	return nil
}

// Ignore excludes files by the text of a .dockerignore file. name is its name in errors.
func (d *Dir) Ignore(name string, text []byte) error {
	patterns, err := ignorefile.ReadAll(bytes.NewReader(text))
	if err != nil {
		return api.Invalid("context", "%s: %w", name, err)
	}
	if d.ignore, err = patternmatcher.New(patterns); err != nil {
		return api.Invalid("context", "%s: %w", name, err)
	}
	return nil
}

// open opens a regular file for reading. A FIFO in its place does not block.
func (d *Dir) open(name string) (*os.File, error) {
	f, err := d.root.OpenFile(local(name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, contextError(name, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = api.Invalid("context", "%s is no regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// local returns a path as the root takes it.
func local(name string) string {
	if name == "" {
		return "."
	}
	return filepath.FromSlash(name)
}

// contextError tells a path that leaves the context from other failures.
func contextError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return api.Errorf(api.CodeNotFound, "%q is not in the build context: %w", name, fs.ErrNotExist)
	case strings.Contains(err.Error(), "escapes from parent"): // os.Root has no error value for it
		return leadsOut(name)
	}
	return fmt.Errorf("read build context: %w", err)
}

// maxLinks bounds the symbolic links of a path, as Linux does.
const maxLinks = 40

// resolve returns a path without symbolic links, so that .dockerignore also counts for the files that links lead to.
func (d *Dir) resolve(name string) (string, error) {
	done, rest := "", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		if part == ".." {
			if done == "" {
				return "", leadsOut(name)
			}
			done = strings.TrimPrefix(path.Dir("/"+done), "/")
			continue
		}
		next := path.Join(done, part)
		info, err := d.root.Lstat(local(next))
		if err != nil {
			return "", contextError(name, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		target, err := d.root.Readlink(local(next))
		if err != nil {
			return "", contextError(name, err)
		}
		if links++; links > maxLinks {
			return "", api.Invalid("context", "%q has more than %d symbolic links", name, maxLinks)
		}
		if path.IsAbs(target) {
			return "", leadsOut(name)
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

func leadsOut(name string) error {
	return api.Errorf(api.CodeForbidden, "%q leads out of the build context, by a symbolic link", name)
}

// ignored reports whether a path is excluded, with the result for the directory above it.
func (d *Dir) ignored(name string, parent patternmatcher.MatchInfo) (bool, patternmatcher.MatchInfo, error) {
	if d.ignore == nil || name == "" {
		return false, parent, nil
	}
	return d.ignore.MatchesUsingParentResults(local(name), parent)
}

// ignoredPath is ignored for a path whose parents were not looked at.
func (d *Dir) ignoredPath(name string) (bool, patternmatcher.MatchInfo, error) {
	var info patternmatcher.MatchInfo
	var ignored bool
	for i, part := 0, ""; i < len(name); {
		next := strings.IndexByte(name[i:], '/')
		if next < 0 {
			part, i = name, len(name)
		} else {
			part, i = name[:i+next], i+next+1
		}
		var err error
		if ignored, info, err = d.ignored(part, info); err != nil {
			return false, info, err
		}
	}
	return ignored, info, nil
}

// entersIgnored reports whether an ignored directory can have files that are not.
func (d *Dir) entersIgnored() bool { return d.ignore != nil && d.ignore.Exclusions() }

// children returns the entries of a directory, sorted.
func (d *Dir) children(name string) ([]fs.DirEntry, error) {
	f, err := d.root.OpenFile(local(name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, contextError(name, err)
	}
	defer f.Close()
	var all []fs.DirEntry
	for {
		some, err := f.ReadDir(4096)
		all = append(all, some...)
		if len(all) > d.limits.Files {
			return nil, d.tooMany()
		}
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read build context: %w", err)
		}
	}
}

func (d *Dir) tooMany() error {
	return api.Errorf(api.CodeLimit, "the build context has more than %d files: exclude some with .dockerignore", d.limits.Files)
}

// hasMeta reports whether a pattern is more than a path.
func hasMeta(pattern string) bool { return strings.ContainsAny(pattern, `*?[\`) }

// matches reports whether a path is selected by a pattern of the same depth, or lies above such paths.
func matches(pattern, name string) (selected, above bool) {
	parts, names := strings.Split(pattern, "/"), strings.Split(name, "/")
	if len(names) > len(parts) {
		return false, false
	}
	for i, n := range names {
		if ok, err := path.Match(parts[i], n); err != nil || !ok {
			return false, false
		}
	}
	return len(names) == len(parts), len(names) < len(parts)
}
