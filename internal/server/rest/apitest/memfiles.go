package apitest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// MemFiles is a service.Files of one tree in memory, which all sandboxes
// have in common. It keeps contents, types and modes, and nothing else.
type MemFiles struct {
	mu    sync.Mutex
	files map[string]memFile
	// Watched is sent to each watcher once.
	Watched api.FileEvents
}

type memFile struct {
	kind byte // of package tar
	mode int64
	data string // contents, or target
}

var memTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// NewMemFiles returns a tree with the directories / and /srv in it, and a file.
func NewMemFiles() *MemFiles {
	return &MemFiles{files: map[string]memFile{
		"/": {kind: tar.TypeDir, mode: 0o755}, "/srv": {kind: tar.TypeDir, mode: 0o755}, "/srv/hello": {tar.TypeReg, 0o640, "hello\n"},
	}}
}

// find returns a file, and follows links unless f forbids it. mu is held.
func (m *MemFiles) find(f api.FileRef) (string, memFile, error) {
	if err := api.ValidPath("path", f.Path); err != nil {
		return "", memFile{}, err
	}
	name := path.Clean(f.Path)
	file, ok := m.files[name]
	if ok && file.kind == tar.TypeSymlink && !f.NoFollow {
		return m.find(api.FileRef{Path: path.Join("/", path.Dir(name), file.data)})
	}
	if !ok {
		return "", memFile{}, api.Errorf(api.CodeNotFound, "%q: no such file or directory", name)
	}
	return name, file, nil
}

func (f memFile) info(name string) *api.FileInfo {
	info := &api.FileInfo{
		Path: name, Mode: fmt.Sprintf("%04o", f.mode), MTime: memTime, Links: 1, Size: int64(len(f.data)),
		Type: map[byte]string{tar.TypeReg: "file", tar.TypeDir: "dir", tar.TypeSymlink: "symlink", tar.TypeFifo: "fifo"}[f.kind],
	}
	switch f.kind {
	case tar.TypeSymlink:
		info.Target = f.data
	case tar.TypeReg:
		info.ETag = fmt.Sprintf("v-%d", len(f.data))
	}
	return info
}

// StatFile implements service.Files.
func (m *MemFiles) StatFile(_ context.Context, _ string, f api.FileRef) (*api.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name, file, err := m.find(f)
	if err != nil {
		return nil, err
	}
	return file.info(name), nil
}

type memOpen struct {
	*strings.Reader
	info api.FileInfo
}

func (o memOpen) Close() error       { return nil }
func (o memOpen) Info() api.FileInfo { return o.info }

// OpenFile implements service.Files.
func (m *MemFiles) OpenFile(_ context.Context, _ string, f api.FileRef) (service.OpenFile, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name, file, err := m.find(f)
	if err != nil {
		return nil, err
	}
	if file.kind != tar.TypeReg {
		return nil, api.Errorf(api.CodeUnsupported, "%q is no regular file", name)
	}
	return memOpen{strings.NewReader(file.data), *file.info(name)}, nil
}

// WriteFile implements service.Files.
func (m *MemFiles) WriteFile(_ context.Context, _ string, req api.WriteRequest, from io.Reader) (*api.FileInfo, error) {
	data, err := io.ReadAll(from)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, _, err := m.find(api.FileRef{Path: path.Dir(req.Path)}); err != nil && !req.Parents {
		return nil, err
	}
	name, file, err := m.find(req.FileRef)
	switch {
	case err == nil && (req.New || !matches(req.IfMatch, file.info(name)) || slices.Contains(req.IfNoneMatch, file.info(name).ETag)), err != nil && req.IfMatch != nil:
		return nil, api.Errorf(api.CodeChanged, "%q is there, or is another one", name)
	case err != nil:
		name, file = path.Clean(req.Path), memFile{tar.TypeReg, 0o644, ""}
	}
	if req.Mode != nil {
		file.mode = int64(*req.Mode)
	}
	if !req.Append {
		file.data = ""
	}
	file.data += string(data)
	m.files[name] = file
	info := file.info(name)
	info.Created = err != nil
	return info, nil
}

func matches(tags []string, f *api.FileInfo) bool {
	return tags == nil || slices.Contains(tags, api.AnyETag) || slices.Contains(tags, f.ETag)
}

// ChangeFile implements service.Files.
func (m *MemFiles) ChangeFile(_ context.Context, _ string, c api.FileChange) (*api.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.NoFollow = true
	name, file, err := m.find(c.FileRef)
	if c.Action == api.FileMkdir {
		name, file, err = path.Clean(c.Path), memFile{kind: tar.TypeDir, mode: 0o755}, nil
	}
	if err != nil {
		return nil, err
	}
	if !matches(c.IfMatch, file.info(name)) {
		return nil, api.Errorf(api.CodeChanged, "%q is another one", name)
	}
	if c.Mode != nil {
		file.mode = int64(*c.Mode)
	}
	if c.Action == api.FileRemove || c.Action == api.FileMove {
		delete(m.files, name)
	}
	if c.Action == api.FileMove {
		name = path.Clean(c.To)
	}
	if c.Action != api.FileRemove {
		m.files[name] = file
	}
	return file.info(name), nil
}

// below returns the names below a directory, in order. mu is held.
func (m *MemFiles) below(dir string) []string {
	names := slices.Sorted(maps.Keys(m.files))
	return slices.DeleteFunc(names, func(n string) bool { return n == dir || !strings.HasPrefix(n, strings.TrimSuffix(dir, "/")+"/") })
}

// ListFiles implements service.Files. It has neither depth nor globs.
func (m *MemFiles) ListFiles(_ context.Context, _ string, req api.ListRequest) (*api.FileList, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, _, err := m.find(req.FileRef)
	if err != nil {
		return nil, err
	}
	l := &api.FileList{}
	for _, name := range m.below(dir) {
		rel := strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")
		switch {
		case rel <= req.After:
		case len(l.Files) == req.Limit:
			l.Next = strings.TrimPrefix(strings.TrimPrefix(l.Files[req.Limit-1].Path, dir), "/")
			return l, nil
		default:
			l.Files = append(l.Files, *m.files[name].info(name))
		}
	}
	return l, nil
}

// SearchFiles implements service.Files: for names that are the glob, and
// files that have the text.
func (m *MemFiles) SearchFiles(_ context.Context, _ string, req api.SearchRequest) (*api.SearchResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	res := &api.SearchResult{}
	for _, name := range m.below(path.Clean(req.Path)) {
		f := m.files[name]
		if (req.Glob == "" || req.Glob == path.Base(name)) && strings.Contains(f.data, req.Text) {
			res.Matches = append(res.Matches, api.Match{File: *f.info(name)})
		}
	}
	return res, nil
}

// ReadArchive implements service.Files.
func (m *MemFiles) ReadArchive(_ context.Context, _ string, f api.FileRef, to io.Writer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	top, _, err := m.find(f)
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	for _, name := range append([]string{top}, m.below(top)...) {
		file := m.files[name]
		h := &tar.Header{Typeflag: file.kind, Name: path.Join(cmp.Or(strings.Trim(path.Base(top), "/"), "."), strings.TrimPrefix(name, top)), Mode: file.mode, ModTime: memTime}
		if file.kind == tar.TypeSymlink {
			h.Linkname = file.data
		} else {
			h.Size = int64(len(file.data))
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, file.data); err != nil {
				return err
			}
		}
	}
	return w.Close()
}

// WriteArchive implements service.Files.
func (m *MemFiles) WriteArchive(_ context.Context, _ string, f api.FileRef, _ bool, from io.Reader) (*api.ExtractResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, _, err := m.find(f)
	if err != nil {
		return nil, err
	}
	res := &api.ExtractResult{}
	for in := tar.NewReader(from); ; res.Files++ {
		h, err := in.Next()
		if err == io.EOF {
			return res, nil
		}
		if err != nil {
			return nil, api.Errorf(api.CodeInvalid, "read archive: %w", err)
		}
		var data bytes.Buffer
		n, err := data.ReadFrom(in)
		if err != nil {
			return nil, err
		}
		res.Bytes += n
		if h.Typeflag == tar.TypeDir {
			res.Directories++
		}
		m.files[path.Join(dir, h.Name)] = memFile{h.Typeflag, h.Mode, data.String() + h.Linkname}
	}
}

// Put makes an entry, of one of tar's types.
func (m *MemFiles) Put(name string, kind byte, mode int64, data string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = memFile{kind, mode, data}
}

// WatchFiles implements service.Files.
func (m *MemFiles) WatchFiles(ctx context.Context, _ string, _ api.WatchRequest, each func(api.FileEvents) error) error {
	if err := each(api.FileEvents{Ready: true, Changes: []api.FileEvent{}}); err != nil {
		return err
	}
	if err := each(m.Watched); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}
