package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Files reads and changes the files of sandboxes.
type Files struct{ conn *connection }

// filePage is the largest page of files that the daemon gives.
const filePage = 10_000

// query collects parameters and leaves out the unset ones.
type query struct{ url.Values }

func fileQuery(f api.FileRef) query {
	q := query{url.Values{"path": {f.Path}}}
	q.text("user", f.User)
	q.flag("no_follow", f.NoFollow)
	return q
}

func (q query) text(name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func (q query) flag(name string, on bool) {
	if on {
		q.Set(name, "true")
	}
}

func (q query) mode(mode *uint32) {
	if mode != nil {
		q.Set("mode", strconv.FormatUint(uint64(*mode), 8))
	}
}

// Stat describes a file.
func (s *Files) Stat(ctx context.Context, ref string, f api.FileRef) (*api.FileInfo, error) {
	return on[*api.FileInfo](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/files/stat", fileQuery(f).Values, nil)
}

// Read returns the contents of a regular file and its size. The caller
// closes the reader, which fails if the connection breaks off.
func (s *Files) Read(ctx context.Context, ref string, f api.FileRef) (io.ReadCloser, int64, error) {
	p, err := path("sandboxes", ref, "/files")
	if err != nil {
		return nil, 0, err
	}
	resp, err := s.conn.send(ctx, http.MethodGet, p, fileQuery(f).Values, nil, "*/*", nil)
	if err != nil {
		return nil, 0, err
	}
	return &body{ctx, resp.Body}, resp.ContentLength, nil
}

// body is the body of a response, whose errors say why it broke off.
type body struct {
	ctx context.Context
	io.ReadCloser
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil || err == io.EOF:
	case errors.Is(err, io.ErrUnexpectedEOF) && b.ctx.Err() == nil: // the daemon breaks off when it cannot go on
		err = api.Errorf(api.CodeUnavailable, "call daemon: the answer broke off in the middle: the sandbox, the daemon or the connection ended (%w)", err)
	default:
		err = connectionError(b.ctx, err)
	}
	return n, err
}

// ifMatch returns the header that demands a file of one of the tags.
func ifMatch(tags []string) http.Header {
	header := http.Header{}
	for _, tag := range tags {
		if tag != api.AnyETag {
			tag = `"` + tag + `"`
		}
		header.Add("If-Match", tag)
	}
	return header
}

// Write writes the bytes of from to a regular file, and describes it. An error of from breaks
// the request off. If from has a method Size() int64 whose result is not zero, from must have
// that many bytes.
func (s *Files) Write(ctx context.Context, ref string, req api.WriteRequest, from io.Reader) (*api.FileInfo, error) {
	q := fileQuery(req.FileRef)
	q.mode(req.Mode)
	q.flag("atomic", req.Atomic)
	q.flag("append", req.Append)
	q.flag("parents", req.Parents)
	header := ifMatch(req.IfMatch)
	for _, tag := range req.IfNoneMatch {
		header.Add("If-None-Match", `"`+tag+`"`)
	}
	if req.New {
		header.Set("If-None-Match", "*")
	}
	return upload[*api.FileInfo](ctx, s.conn, ref, "/files", q.Values, header, "application/octet-stream", from)
}

// ReadArchive returns a file or directory as a tar stream. The caller closes
// the reader, which fails if the connection breaks off.
func (s *Files) ReadArchive(ctx context.Context, ref string, f api.FileRef) (io.ReadCloser, error) {
	p, err := path("sandboxes", ref, "/files/archive")
	if err != nil {
		return nil, err
	}
	resp, err := s.conn.send(ctx, http.MethodGet, p, fileQuery(f).Values, nil, "*/*", nil)
	if err != nil {
		return nil, err
	}
	return &body{ctx, resp.Body}, nil
}

// WriteArchive unpacks a tar stream below a directory. With parents it makes the directory and
// those above it.
func (s *Files) WriteArchive(ctx context.Context, ref string, f api.FileRef, parents bool, from io.Reader) (*api.ExtractResult, error) {
	q := fileQuery(f)
	q.flag("parents", parents)
	return upload[*api.ExtractResult](ctx, s.conn, ref, "/files/archive", q.Values, nil, "application/x-tar", from)
}

// upload makes a PUT request whose body is streamed.
func upload[T any](ctx context.Context, c *connection, ref, rest string, q url.Values, header http.Header, mediaType string, from io.Reader) (T, error) {
	p, err := path("sandboxes", ref, rest)
	if err != nil {
		var none T
		return none, err
	}
	return sendBody[T](ctx, c, http.MethodPut, p, q, header, mediaType, from)
}

// sendBody sends a body of any length.
func sendBody[T any](ctx context.Context, c *connection, method, p string, q url.Values, header http.Header, mediaType string, from io.Reader) (T, error) {
	var v T
	in := &source{Reader: from}
	req, err := http.NewRequestWithContext(ctx, method, c.base+p+"?"+q.Encode(), in)
	if err != nil {
		return v, api.Errorf(api.CodeInvalid, "make request: %w", err)
	}
	maps.Copy(req.Header, header)
	if sized, ok := from.(interface{ Size() int64 }); ok {
		req.ContentLength = sized.Size()
	}
	req.Header.Set("Content-Type", mediaType)
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if in.err != nil {
		err = fmt.Errorf("read what to send: %w", in.err)
		if resp != nil {
			resp.Body.Close()
		}
		return v, err
	}
	if err != nil {
		return v, connectionError(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		return v, problemOf(resp)
	}
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return v, connectionError(ctx, err)
	}
	return v, nil
}

// source remembers the last error of reading, to tell it from an error of sending.
type source struct {
	io.Reader
	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// Change makes a directory, or moves, removes or changes the mode of a file. The result
// describes the file afterwards, and is nil after a removal.
func (s *Files) Change(ctx context.Context, ref string, ch api.FileChange) (*api.FileInfo, error) {
	q := fileQuery(ch.FileRef)
	q.text("to", ch.To)
	q.mode(ch.Mode)
	q.flag("parents", ch.Parents)
	q.flag("recursive", ch.Recursive)
	q.flag("keep", ch.Keep)
	if ch.Action == api.FileRemove {
		return nil, s.conn.removeFile(ctx, ref, q.Values, ifMatch(ch.IfMatch))
	}
	return on[*api.FileInfo](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/files/"+string(ch.Action), q.Values, nil)
}

func (c *connection) removeFile(ctx context.Context, ref string, q url.Values, header http.Header) error {
	p, err := path("sandboxes", ref, "/files")
	if err != nil {
		return err
	}
	resp, err := c.send(ctx, http.MethodDelete, p, q, nil, "application/json", header)
	if err != nil {
		return err
	}
	resp.Body.Close()
	return nil
}

// List calls each with the files below a directory, in order.
func (s *Files) List(ctx context.Context, ref string, req api.ListRequest, each func(api.FileInfo) error) error {
	q := fileQuery(req.FileRef)
	q.Set("depth", strconv.Itoa(req.Depth))
	q.text("glob", req.Glob)
	q.Set("limit", strconv.Itoa(filePage))
	for {
		page, err := on[httpwire.List[api.FileInfo]](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/files/list", q.Values, nil)
		if err != nil {
			return err
		}
		for _, f := range page.Items {
			if err := each(f); err != nil {
				return err
			}
		}
		if page.NextPageToken == "" {
			return nil
		}
		q.Set("page_token", page.NextPageToken)
	}
}

// Search searches files by name and content.
func (s *Files) Search(ctx context.Context, ref string, req api.SearchRequest) (*api.SearchResult, error) {
	q := fileQuery(req.FileRef)
	q.text("name", req.Glob)
	q.text("content", req.Text)
	q.flag("regexp", req.Regexp)
	q.flag("ignore_case", req.IgnoreCase)
	if req.Limit > 0 {
		q.Set("limit", strconv.Itoa(req.Limit))
	}
	return on[*api.SearchResult](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/files/search", q.Values, nil)
}

// Watch calls each with changes until ctx ends or each fails.
func (s *Files) Watch(ctx context.Context, ref string, req api.WatchRequest, each func(api.FileEvents) error) error {
	p, err := path("sandboxes", ref, "/files/watch")
	if err != nil {
		return err
	}
	q := fileQuery(req.FileRef)
	q.flag("recursive", req.Recursive)
	q.Set("debounce_ms", strconv.Itoa(req.DebounceMS))
	return s.conn.events(ctx, http.MethodGet, p, q.Values, nil, func(ev httpwire.Event) (bool, error) {
		if ev.Name != httpwire.EventFiles {
			return false, nil
		}
		var e api.FileEvents
		if err := json.Unmarshal(ev.Data, &e); err != nil {
			return false, fmt.Errorf("decode changes of files: %w", err)
		}
		return false, each(e)
	})
}
