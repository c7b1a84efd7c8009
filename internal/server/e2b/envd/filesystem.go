package envd

import (
	"context"
	"fmt"
	iofs "io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// Messages of the service filesystem.Filesystem. Numbers of 64 bits are strings.
type (
	entryInfo struct {
		Name         string    `json:"name"`
		Type         string    `json:"type"`
		Path         string    `json:"path"`
		Size         string    `json:"size"`
		Mode         uint32    `json:"mode"`
		Permissions  string    `json:"permissions"`
		Owner        string    `json:"owner"`
		Group        string    `json:"group"`
		ModifiedTime time.Time `json:"modifiedTime"`
		Target       *string   `json:"symlinkTarget,omitempty"`
		IsSymlink    bool      `json:"isSymlink,omitempty"`

		Metadata map[string]string `json:"metadata,omitempty"`
	}
	entry struct {
		Entry *entryInfo `json:"entry,omitempty"`
	}
	pathRequest struct {
		Path string `json:"path"`
	}
	moveRequest struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}
	listRequest struct {
		Path  string `json:"path"`
		Depth int    `json:"depth"`
	}
	listResponse struct {
		Entries []*entryInfo `json:"entries,omitempty"`
	}
)

// maxEntries bounds a list, which is one message.
const maxEntries = 100_000

// filesystem is that of each sandbox.
type filesystem struct {
	svc      service.Files
	watchers *watchers
}

func (f *filesystem) route(a *Agent) {
	unary(a, "/filesystem.Filesystem/Stat", f.stat)
	unary(a, "/filesystem.Filesystem/MakeDir", f.makeDir)
	unary(a, "/filesystem.Filesystem/Move", f.move)
	unary(a, "/filesystem.Filesystem/ListDir", f.list)
	unary(a, "/filesystem.Filesystem/Remove", f.remove)
	stream(a, "/filesystem.Filesystem/WatchDir", f.watch)
	unary(a, "/filesystem.Filesystem/CreateWatcher", f.createWatcher)
	unary(a, "/filesystem.Filesystem/GetWatcherEvents", f.watcherEvents)
	unary(a, "/filesystem.Filesystem/RemoveWatcher", f.removeWatcher)
}

// ref returns the file that a path of a request means. Files are read and written as root, and what is made is given to
// the user.
func (s *Sandbox) ref(p string) api.FileRef {
	return api.FileRef{Path: s.absolute(p), Owner: s.user(), Xattrs: metadataPrefix}
}

// describe returns what clients are told of a file. A symbolic link has the type and the mode of what it leads to.
func (fs *filesystem) describe(ctx context.Context, s *Sandbox, f *api.FileInfo) *entryInfo {
	mode, err := strconv.ParseUint(f.Mode, 8, 32)
	if err != nil {
		mode = 0
	}
	e := &entryInfo{
		Name: path.Base(f.Path), Path: f.Path, Size: strconv.FormatInt(f.Size, 10), Mode: uint32(mode) & 0o7777,
		Owner: userName(f.UID), Group: userName(f.GID), ModifiedTime: f.MTime.UTC(), Metadata: metadataOf(f),
	}
	kind, bits := f.Type, iofs.FileMode(mode)&iofs.ModePerm
	if f.Type == "symlink" {
		e.IsSymlink, e.Target = true, &f.Target
		bits |= iofs.ModeSymlink
		ref := s.ref(f.Path)
		ref.Real = true
		if at, err := fs.svc.StatFile(ctx, s.ID, ref); err == nil {
			kind, e.Target = at.Type, &at.Path
			if mode, err := strconv.ParseUint(at.Mode, 8, 32); err == nil {
				e.Mode = uint32(mode) & 0o7777
			}
		}
	}
	switch kind {
	case "dir":
		e.Type = "FILE_TYPE_DIRECTORY"
		if !e.IsSymlink {
			bits |= iofs.ModeDir
		}
	case "symlink":
		e.Type = "FILE_TYPE_SYMLINK"
	case "file":
		e.Type = "FILE_TYPE_FILE"
	default:
		e.Type = "FILE_TYPE_UNSPECIFIED"
	}
	e.Permissions = bits.String()
	return e
}

// userName returns the name of a user. Those of the templates are known; others have their number.
func userName(id uint32) string {
	switch id {
	case 0:
		return "root"
	case 1000:
		return "user"
	}
	return strconv.FormatUint(uint64(id), 10)
}

// look returns what there is at a path, without following a link there.
func (fs *filesystem) look(ctx context.Context, s *Sandbox, p string) (*entryInfo, error) {
	ref := s.ref(p)
	ref.NoFollow = true
	f, err := fs.svc.StatFile(ctx, s.ID, ref)
	if err != nil {
		return nil, err
	}
	return fs.describe(ctx, s, f), nil
}

func (fs *filesystem) stat(ctx context.Context, s *Sandbox, in *pathRequest) (*entry, error) {
	e, err := fs.look(ctx, s, in.Path)
	return &entry{e}, err
}

// makeDir makes a directory and those above it. One that is there is an error, which clients know.
func (fs *filesystem) makeDir(ctx context.Context, s *Sandbox, in *pathRequest) (*entry, error) {
	f, err := fs.svc.StatFile(ctx, s.ID, s.ref(in.Path))
	switch {
	case err == nil && f.Type == "dir":
		return nil, api.Errorf(api.CodeConflict, "directory %q exists", f.Path)
	case err == nil:
		return nil, api.Invalid("path", "%q is a %s, not a directory", f.Path, f.Type)
	case api.CodeOf(err) != api.CodeNotFound || Gone(err):
		return nil, err
	}
	if _, err := fs.svc.ChangeFile(ctx, s.ID, api.FileChange{FileRef: s.ref(in.Path), Action: api.FileMkdir, Parents: true}); err != nil {
		return nil, err
	}
	return fs.stat(ctx, s, in)
}

func (fs *filesystem) move(ctx context.Context, s *Sandbox, in *moveRequest) (*entry, error) {
	ref := s.ref(in.Source)
	ref.NoFollow = true
	if _, err := fs.svc.ChangeFile(ctx, s.ID, api.FileChange{FileRef: ref, Action: api.FileMove, To: s.absolute(in.Destination), Parents: true}); err != nil {
		return nil, err
	}
	return fs.stat(ctx, s, &pathRequest{in.Destination})
}

func (fs *filesystem) list(ctx context.Context, s *Sandbox, in *listRequest) (*listResponse, error) {
	f, err := fs.svc.StatFile(ctx, s.ID, s.ref(in.Path))
	if err != nil {
		return nil, err
	}
	if f.Type != "dir" {
		return nil, api.Invalid("path", "%q is a %s, not a directory", f.Path, f.Type)
	}
	out := &listResponse{}
	req := api.ListRequest{FileRef: s.ref(in.Path), Depth: max(in.Depth, 1), Limit: 1000}
	for {
		page, err := fs.svc.ListFiles(ctx, s.ID, req)
		if err != nil {
			return nil, err
		}
		for i := range page.Files {
			out.Entries = append(out.Entries, fs.describe(ctx, s, &page.Files[i]))
		}
		if page.Next == "" {
			return out, nil
		}
		if len(out.Entries) >= maxEntries {
			return nil, api.Errorf(api.CodeLimit, "%q has more than %d entries: list fewer levels", in.Path, maxEntries)
		}
		req.After = page.Next
	}
}

// remove removes a file, or a directory with all below it. One that is not there is removed already.
func (fs *filesystem) remove(ctx context.Context, s *Sandbox, in *pathRequest) (*nothing, error) {
	ref := s.ref(in.Path)
	ref.NoFollow = true
	_, err := fs.svc.ChangeFile(ctx, s.ID, api.FileChange{FileRef: ref, Action: api.FileRemove, Recursive: true})
	if api.CodeOf(err) == api.CodeNotFound && !Gone(err) {
		err = nil
	}
	return &nothing{}, err
}

// relative returns a path as watchers tell it: below the directory that is watched.
func relative(dir, p string) string {
	if dir == "/" {
		return strings.TrimPrefix(p, "/")
	}
	rest, ok := strings.CutPrefix(p, dir)
	if !ok {
		return p
	}
	return strings.TrimPrefix(rest, "/")
}

// directory returns the directory that is to be watched.
func (fs *filesystem) directory(ctx context.Context, s *Sandbox, p string) (string, error) {
	f, err := fs.svc.StatFile(ctx, s.ID, s.ref(p))
	if err != nil {
		return "", err
	}
	if f.Type != "dir" {
		return "", api.Invalid("path", "%q is a %s, not a directory", f.Path, f.Type)
	}
	return s.absolute(p), nil
}

var errTooMany = fmt.Sprintf("a sandbox has at most %d watchers, and all sandboxes %d: remove one", maxWatchersOf, maxWatchers)
