package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"ramet.dev/ramet/internal/access"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/launch"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
)

// Files are read and written by the sandbox's sentry, through its kernel: that
// alone sees what is mounted, enforces permissions, keeps to the limit of the
// disk and tells those who watch. It works in paused sandboxes too.

// maxItems bounds the results of one list or search, in bytes of JSON: above
// what a sentry sends that keeps to its own bounds.
const maxItems = 64 << 20

// useFiles returns a sandbox that ref names and its sentry, which is used until done
// is called.
func (m *Manager) useFiles(ctx context.Context, ref string) (b *box, sentry *launch.Sentry, done func(), err error) {
	if b, err = m.resolve(ctx, ref); err != nil {
		return nil, nil, nil, err
	}
	sentry, done, err = m.use(ctx, b, sandbox.StateRunning, sandbox.StatePaused)
	return b, sentry, done, err
}

// onFiles runs do with the sentry of a sandbox.
func (m *Manager) onFiles(ctx context.Context, ref string, do func(*launch.Sentry) error) error {
	b, sentry, done, err := m.useFiles(ctx, ref)
	if err != nil {
		return err
	}
	defer done()
	if err := do(sentry); err != nil {
		return m.explain(b, sentry, err)
	}
	return nil
}

func fileCall(verb wire.Verb, f sandbox.FileRef) *wire.File {
	return &wire.File{Verb: verb, Path: []byte(f.Path), User: f.User, NoFollow: f.NoFollow}
}

// fileInfo makes a call that is answered with the description of a file.
func (m *Manager) fileInfo(ctx context.Context, ref string, req *wire.File) (*sandbox.FileInfo, error) {
	var info sandbox.FileInfo
	err := m.onFiles(ctx, ref, func(s *launch.Sentry) error {
		_, err := s.Call(ctx, &wire.Call{Op: wire.OpFile, File: req}, &info)
		return err
	})
	return &info, err
}

// StatFile implements httpapi.FileService.
func (m *Manager) StatFile(ctx context.Context, ref string, f sandbox.FileRef) (*sandbox.FileInfo, error) {
	return m.fileInfo(ctx, ref, fileCall(wire.FileStat, f))
}

// openFile is a launch.File as httpapi knows it. The sandbox is used until it is closed.
type openFile struct {
	*launch.File
	done func()
}

// Close implements io.Closer.
func (f openFile) Close() error {
	defer f.done()
	return f.File.Close()
}

// Info implements httpapi.OpenFile.
func (f openFile) Info() sandbox.FileInfo { return f.File.Info }

// OpenFile implements httpapi.FileService.
func (m *Manager) OpenFile(ctx context.Context, ref string, f sandbox.FileRef) (httpapi.OpenFile, error) {
	b, sentry, done, err := m.useFiles(ctx, ref)
	if err != nil {
		return nil, err
	}
	open, err := sentry.OpenFile(ctx, fileCall(wire.FileRead, f))
	if err != nil {
		done()
		return nil, m.explain(b, sentry, err)
	}
	return openFile{open, sync.OnceFunc(done)}, nil
}

// WriteFile implements httpapi.FileService.
func (m *Manager) WriteFile(ctx context.Context, ref string, req sandbox.WriteRequest, from io.Reader) (*sandbox.FileInfo, error) {
	if req.Atomic && req.Append {
		return nil, sandbox.Invalid("append", "what is appended cannot be written atomically")
	}
	call := fileCall(wire.FileWrite, req.FileRef)
	call.Mode, call.Atomic, call.Append, call.Parents = req.Mode, req.Atomic, req.Append, req.Parents
	call.IfMatch, call.NoneMatch, call.New = req.IfMatch, req.IfNoneMatch, req.New
	var info sandbox.FileInfo
	err := m.onFiles(ctx, ref, func(s *launch.Sentry) error { return s.FileSend(ctx, call, from, &info) })
	return &info, err
}

// ChangeFile implements httpapi.FileService.
func (m *Manager) ChangeFile(ctx context.Context, ref string, c sandbox.FileChange) (*sandbox.FileInfo, error) {
	verbs := map[sandbox.FileAction]wire.Verb{
		sandbox.FileMkdir: wire.FileMkdir, sandbox.FileMove: wire.FileMove, sandbox.FileRemove: wire.FileRemove, sandbox.FileChmod: wire.FileChmod,
	}
	verb, ok := verbs[c.Action]
	if !ok {
		return nil, fmt.Errorf("change files: no action %q", c.Action)
	}
	if c.Action == sandbox.FileChmod && c.Mode == nil {
		return nil, sandbox.Invalid("mode", "a mode is missing")
	}
	call := fileCall(verb, c.FileRef)
	call.To, call.Mode, call.Parents, call.Recursive, call.Keep, call.IfMatch = []byte(c.To), c.Mode, c.Parents, c.Recursive, c.Keep, c.IfMatch
	return m.fileInfo(ctx, ref, call)
}

// ListFiles implements httpapi.FileService.
func (m *Manager) ListFiles(ctx context.Context, ref string, req sandbox.ListRequest) (*sandbox.FileList, error) {
	call := fileCall(wire.FileList, req.FileRef)
	call.Depth, call.Glob, call.Limit, call.After = req.Depth, []byte(req.Glob), req.Limit, []byte(req.After)
	room := maxItems
	list := &sandbox.FileList{Files: []sandbox.FileInfo{}}
	var end wire.Listed
	err := m.items(ctx, ref, call, &end, func(body []byte) error {
		if room -= len(body); len(list.Files) == req.Limit || room < 0 {
			return errTooMany
		}
		var f sandbox.FileInfo
		if err := json.Unmarshal(body, &f); err != nil {
			return fmt.Errorf("decode list of files: %w", err)
		}
		list.Files = append(list.Files, f)
		return nil
	})
	list.Next = string(end.Next)
	return list, err
}

// SearchFiles implements httpapi.FileService.
func (m *Manager) SearchFiles(ctx context.Context, ref string, req sandbox.SearchRequest) (*sandbox.SearchResult, error) {
	call := fileCall(wire.FileSearch, req.FileRef)
	call.Glob, call.Text, call.Regexp, call.IgnoreCase, call.Limit = []byte(req.Glob), []byte(req.Text), req.Regexp, req.IgnoreCase, req.Limit
	room := maxItems
	res := &sandbox.SearchResult{Matches: []sandbox.Match{}}
	var end wire.Listed
	err := m.items(ctx, ref, call, &end, func(body []byte) error {
		if room -= len(body); len(res.Matches) == req.Limit || room < 0 {
			return errTooMany
		}
		var match sandbox.Match
		if err := json.Unmarshal(body, &match); err != nil {
			return fmt.Errorf("decode match: %w", err)
		}
		res.Matches = append(res.Matches, match)
		return nil
	})
	res.Truncated = end.Truncated
	return res, err
}

// errTooMany is for a sentry that does not keep to what was agreed.
var errTooMany = sandbox.Errorf(sandbox.CodeCorrupt, "the sandbox's answer has more in it than was asked for")

// items makes a call that is answered with results one by one.
func (m *Manager) items(ctx context.Context, ref string, call *wire.File, end any, each func([]byte) error) error {
	return m.onFiles(ctx, ref, func(s *launch.Sentry) error {
		return s.FileStream(ctx, call, func(_ wire.Type, body []byte) error { return each(body) }, end)
	})
}

// ReadArchive implements httpapi.FileService.
func (m *Manager) ReadArchive(ctx context.Context, ref string, f sandbox.FileRef, to io.Writer) error {
	turn, err := m.archives.Take(ctx, access.From(ctx).Tenant)
	if err != nil {
		return err
	}
	defer turn()
	return m.items(ctx, ref, fileCall(wire.FileArchive, f), &struct{}{}, func(body []byte) error {
		_, err := to.Write(body)
		return err
	})
}

// WriteArchive implements httpapi.FileService.
func (m *Manager) WriteArchive(ctx context.Context, ref string, f sandbox.FileRef, parents bool, from io.Reader) (*sandbox.ExtractResult, error) {
	turn, err := m.archives.Take(ctx, access.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	defer turn()
	call := fileCall(wire.FileExtract, f)
	call.Parents = parents
	var res sandbox.ExtractResult
	err = m.onFiles(ctx, ref, func(s *launch.Sentry) error { return s.FileSend(ctx, call, from, &res) })
	return &res, err
}

// WatchFiles implements httpapi.FileService.
func (m *Manager) WatchFiles(ctx context.Context, ref string, req sandbox.WatchRequest, each func(sandbox.FileEvents) error) error {
	call := fileCall(wire.FileWatch, req.FileRef)
	call.Recursive, call.DebounceMS = req.Recursive, req.DebounceMS
	b, sentry, done, err := m.useFiles(ctx, ref)
	if err != nil {
		return err
	}
	done() // at once: who only looks does not use the sandbox
	err = sentry.FileStream(ctx, call, func(_ wire.Type, body []byte) error {
		var events sandbox.FileEvents
		if err := json.Unmarshal(body, &events); err != nil {
			return fmt.Errorf("decode events: %w", err)
		}
		return each(events)
	}, &struct{}{})
	if err != nil {
		return m.explain(b, sentry, err)
	}
	return nil
}
