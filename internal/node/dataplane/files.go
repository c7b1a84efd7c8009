package dataplane

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// Files are read and written by the sandbox's sentry, through its kernel: only the
// kernel sees what is mounted, enforces permissions, keeps to the limit of the disk and
// notifies watches. It works in paused sandboxes too.

// maxItems bounds the results of one list or search, in bytes of JSON. It is more than
// a sentry sends that keeps to its own bounds.
const maxItems = 64 << 20

// files reads, writes, lists and watches files.
type files struct {
	base
	archives Turns
}

// acquire returns the sandbox that ref names and its sentry, which is in use until
// release is called.
func (p files) acquire(ctx context.Context, ref string) (b Sandbox, sentry *launch.Sentry, release func(), err error) {
	if b, err = p.sandboxes.Find(ctx, ref); err != nil {
		return nil, nil, nil, err
	}
	sentry, release, err = b.Acquire(ctx, api.StateRunning, api.StatePaused)
	return b, sentry, release, err
}

// onFiles runs do with the sentry of a sandbox.
func (p files) onFiles(ctx context.Context, ref string, do func(*launch.Sentry) error) error {
	b, sentry, release, err := p.acquire(ctx, ref)
	if err != nil {
		return err
	}
	defer release()
	if err := do(sentry); err != nil {
		return b.Explain(sentry, err)
	}
	return nil
}

// onWrite is onFiles for a call that changes files at a path.
func (p files) onWrite(ctx context.Context, ref, path string, do func(*launch.Sentry) error) error {
	b, sentry, release, err := p.acquire(ctx, ref)
	if err != nil {
		return err
	}
	defer release()
	wrote := b.Write(ctx)
	err = do(sentry)
	wrote(path)
	if err != nil {
		return b.Explain(sentry, err)
	}
	return nil
}

func fileCall(verb wire.Verb, f api.FileRef) *wire.File {
	return &wire.File{Verb: verb, Path: []byte(f.Path), User: f.User, NoFollow: f.NoFollow, Owner: f.Owner, Real: f.Real, Xattrs: f.Xattrs}
}

// fileInfo makes a call that is answered with the description of a file.
func (p files) fileInfo(ctx context.Context, ref string, req *wire.File) (*api.FileInfo, error) {
	var info api.FileInfo
	err := p.onFiles(ctx, ref, func(s *launch.Sentry) error {
		_, err := s.Call(ctx, &wire.Call{Op: wire.OpFile, File: req}, &info)
		return err
	})
	return &info, err
}

// StatFile implements service.Files.
func (p files) StatFile(ctx context.Context, ref string, f api.FileRef) (*api.FileInfo, error) {
	return p.fileInfo(ctx, ref, fileCall(wire.FileStat, f))
}

// openFile is a launch.File as the service interface has it. The sandbox is in use
// until it is closed.
type openFile struct {
	*launch.File
	release func()
}

// Close implements io.Closer.
func (f openFile) Close() error {
	defer f.release()
	return f.File.Close()
}

// Info implements service.OpenFile.
func (f openFile) Info() api.FileInfo { return f.File.Info }

// OpenFile implements service.Files.
func (p files) OpenFile(ctx context.Context, ref string, f api.FileRef) (service.OpenFile, error) {
	b, sentry, release, err := p.acquire(ctx, ref)
	if err != nil {
		return nil, err
	}
	open, err := sentry.OpenFile(ctx, fileCall(wire.FileRead, f))
	if err != nil {
		release()
		return nil, b.Explain(sentry, err)
	}
	return openFile{open, sync.OnceFunc(release)}, nil
}

// WriteFile implements service.Files.
func (p files) WriteFile(ctx context.Context, ref string, req api.WriteRequest, from io.Reader) (*api.FileInfo, error) {
	if req.Atomic && req.Append {
		return nil, api.Invalid("append", "what is appended cannot be written atomically")
	}
	call := fileCall(wire.FileWrite, req.FileRef)
	call.Mode, call.Atomic, call.Append, call.Parents = req.Mode, req.Atomic, req.Append, req.Parents
	call.IfMatch, call.NoneMatch, call.New = req.IfMatch, req.IfNoneMatch, req.New
	call.SetXattrs = req.SetXattrs
	var info api.FileInfo
	err := p.onWrite(ctx, ref, req.Path, func(s *launch.Sentry) error { return s.FileSend(ctx, call, from, &info) })
	return &info, err
}

// ChangeFile implements service.Files.
func (p files) ChangeFile(ctx context.Context, ref string, c api.FileChange) (*api.FileInfo, error) {
	verbs := map[api.FileAction]wire.Verb{
		api.FileMkdir: wire.FileMkdir, api.FileMove: wire.FileMove, api.FileRemove: wire.FileRemove, api.FileChmod: wire.FileChmod,
	}
	verb, ok := verbs[c.Action]
	if !ok {
		return nil, fmt.Errorf("change files: no action %q", c.Action)
	}
	if c.Action == api.FileChmod && c.Mode == nil {
		return nil, api.Invalid("mode", "a mode is missing")
	}
	call := fileCall(verb, c.FileRef)
	call.To, call.Mode, call.Parents, call.Recursive, call.Keep, call.IfMatch = []byte(c.To), c.Mode, c.Parents, c.Recursive, c.Keep, c.IfMatch
	var info api.FileInfo
	err := p.onWrite(ctx, ref, c.Path, func(s *launch.Sentry) error {
		_, err := s.Call(ctx, &wire.Call{Op: wire.OpFile, File: call}, &info)
		return err
	})
	return &info, err
}

// ListFiles implements service.Files.
func (p files) ListFiles(ctx context.Context, ref string, req api.ListRequest) (*api.FileList, error) {
	call := fileCall(wire.FileList, req.FileRef)
	call.Depth, call.Glob, call.Limit, call.After = req.Depth, []byte(req.Glob), req.Limit, []byte(req.After)
	room := maxItems
	list := &api.FileList{Files: []api.FileInfo{}}
	var end wire.Listed
	err := p.items(ctx, ref, call, &end, func(body []byte) error {
		if room -= len(body); len(list.Files) == req.Limit || room < 0 {
			return errTooMany
		}
		var f api.FileInfo
		if err := json.Unmarshal(body, &f); err != nil {
			return fmt.Errorf("decode list of files: %w", err)
		}
		list.Files = append(list.Files, f)
		return nil
	})
	list.Next = string(end.Next)
	return list, err
}

// SearchFiles implements service.Files.
func (p files) SearchFiles(ctx context.Context, ref string, req api.SearchRequest) (*api.SearchResult, error) {
	call := fileCall(wire.FileSearch, req.FileRef)
	call.Glob, call.Text, call.Regexp, call.IgnoreCase, call.Limit = []byte(req.Glob), []byte(req.Text), req.Regexp, req.IgnoreCase, req.Limit
	room := maxItems
	res := &api.SearchResult{Matches: []api.Match{}}
	var end wire.Listed
	err := p.items(ctx, ref, call, &end, func(body []byte) error {
		if room -= len(body); len(res.Matches) == req.Limit || room < 0 {
			return errTooMany
		}
		var match api.Match
		if err := json.Unmarshal(body, &match); err != nil {
			return fmt.Errorf("decode match: %w", err)
		}
		res.Matches = append(res.Matches, match)
		return nil
	})
	res.Truncated = end.Truncated
	return res, err
}

// errTooMany is the error of a sentry that sends more results than the call allows.
var errTooMany = api.Errorf(api.CodeCorrupt, "the sandbox's answer has more in it than was asked for")

// items makes a call that is answered with results one by one.
func (p files) items(ctx context.Context, ref string, call *wire.File, end any, each func([]byte) error) error {
	return p.onFiles(ctx, ref, func(s *launch.Sentry) error {
		return s.FileStream(ctx, call, func(_ wire.Type, body []byte) error { return each(body) }, end)
	})
}

// ReadArchive implements service.Files.
func (p files) ReadArchive(ctx context.Context, ref string, f api.FileRef, to io.Writer) error {
	turn, err := p.archives.Take(ctx, access.From(ctx).Tenant)
	if err != nil {
		return err
	}
	defer turn()
	return p.items(ctx, ref, fileCall(wire.FileArchive, f), &struct{}{}, func(body []byte) error {
		_, err := to.Write(body)
		return err
	})
}

// WriteArchive implements service.Files.
func (p files) WriteArchive(ctx context.Context, ref string, f api.FileRef, parents bool, from io.Reader) (*api.ExtractResult, error) {
	turn, err := p.archives.Take(ctx, access.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	defer turn()
	call := fileCall(wire.FileExtract, f)
	call.Parents = parents
	var res api.ExtractResult
	err = p.onWrite(ctx, ref, f.Path, func(s *launch.Sentry) error { return s.FileSend(ctx, call, from, &res) })
	return &res, err
}

// WatchFiles implements service.Files.
func (p files) WatchFiles(ctx context.Context, ref string, req api.WatchRequest, each func(api.FileEvents) error) error {
	call := fileCall(wire.FileWatch, req.FileRef)
	call.Recursive, call.DebounceMS, call.Every = req.Recursive, req.DebounceMS, req.Every
	b, sentry, release, err := p.acquire(ctx, ref)
	if err != nil {
		return err
	}
	release() // at once: a caller that only looks on does not use the sandbox
	err = sentry.FileStream(ctx, call, func(_ wire.Type, body []byte) error {
		var events api.FileEvents
		if err := json.Unmarshal(body, &events); err != nil {
			return fmt.Errorf("decode events: %w", err)
		}
		return each(events)
	}, &struct{}{})
	if err != nil {
		return b.Explain(sentry, err)
	}
	return nil
}
