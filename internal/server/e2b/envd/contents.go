package envd

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
)

// written is what clients are told of a file that they wrote.
type written struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Path string `json:"path"`

	Metadata map[string]string `json:"metadata,omitempty"`
}

// contents are those of files.
type contents struct{ *filesystem }

func (c *contents) route(a *Agent) {
	a.handle(http.MethodGet, "/files", http.HandlerFunc(c.read))
	a.handle(http.MethodPost, "/files", http.HandlerFunc(c.write))
	a.handle(http.MethodPost, "/files/compose", http.HandlerFunc(c.compose))
	a.handle(http.MethodGet, "/health", http.HandlerFunc(c.health))
	a.handle(http.MethodGet, "/envs", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { writeJSON(w, http.StatusOK, of(r.Context()).Env) }))
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, api.NotFound("route", r.Method+" "+r.URL.Path))
	})
}

// statuses are those of HTTP for our codes.
var statuses = map[api.Code]int{
	api.CodeInvalid: http.StatusBadRequest, api.CodeNotFound: http.StatusNotFound, api.CodeUnknownUser: http.StatusUnauthorized,
	api.CodeForbidden: http.StatusForbidden, api.CodePermission: http.StatusForbidden, api.CodeConflict: http.StatusConflict,
	api.CodeNameTaken: http.StatusConflict, api.CodeWrongState: http.StatusConflict, api.CodeLimit: http.StatusTooManyRequests,
	api.CodeNoMemory: http.StatusTooManyRequests, api.CodeNoSpace: http.StatusInsufficientStorage, api.CodeUnavailable: http.StatusServiceUnavailable,
	api.CodeTimeout: http.StatusGatewayTimeout, api.CodeUnsupported: http.StatusNotImplemented,
}

// WriteError answers with an error, in the form that clients of E2B know.
func WriteError(w http.ResponseWriter, err error) {
	status := cmp.Or(statuses[api.CodeOf(err)], http.StatusInternalServerError)
	message := err.Error()
	if Gone(err) {
		status, message = http.StatusBadGateway, GoneMessage
	}
	writeJSON(w, status, map[string]any{"code": status, "message": message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

// health answers whether the sandbox runs.
func (c *contents) health(w http.ResponseWriter, r *http.Request) {
	if _, err := c.svc.StatFile(r.Context(), of(r.Context()).ID, api.FileRef{Path: "/"}); err != nil {
		if api.CodeOf(err) == api.CodeWrongState { // it was paused meanwhile
			err = api.NotFound("sandbox", of(r.Context()).ID)
		}
		WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// contentsOf returns the sandbox and the user of a request for contents: the user is a parameter there.
func contentsOf(r *http.Request) *Sandbox {
	s := *of(r.Context())
	if user := r.URL.Query().Get("username"); user != "" {
		s.User = user
	}
	return &s
}

func (c *contents) read(w http.ResponseWriter, r *http.Request) {
	s := contentsOf(r)
	f, err := c.svc.OpenFile(r.Context(), s.ID, s.ref(r.URL.Query().Get("path")))
	if err != nil {
		WriteError(w, err)
		return
	}
	defer f.Close()
	info := f.Info()
	w.Header().Set("Content-Type", cmp.Or(mime.TypeByExtension(path.Ext(info.Path)), "application/octet-stream"))
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(info.Path)}))
	http.ServeContent(w, r, "", info.MTime, f)
}

// write writes the files of a form, or a body as one file.
func (c *contents) write(w http.ResponseWriter, r *http.Request) {
	s := contentsOf(r)
	to := r.URL.Query().Get("path")
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			WriteError(w, api.Invalid("body", "it is not gzip: %v", err))
			return
		}
		defer z.Close()
		body = z
	}
	media, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	metadata, err := metadataIn(r.Header)
	if err != nil {
		WriteError(w, err)
		return
	}
	var all []written
	put := func(p string, from io.Reader) error {
		if p == "" {
			return api.Invalid("path", "it is missing")
		}
		if at := s.absolute(p); slices.ContainsFunc(all, func(w written) bool { return w.Path == at }) {
			return api.Invalid("body", "two files of the form go to %q: the first one was written", at)
		}
		f, err := c.svc.WriteFile(r.Context(), s.ID, api.WriteRequest{FileRef: s.ref(p), Parents: true, SetXattrs: metadata}, from)
		if err == nil {
			all = append(all, written{Name: path.Base(f.Path), Type: "file", Path: f.Path, Metadata: metadataOf(f)})
		}
		return err
	}
	if media == "multipart/form-data" {
		err = eachPart(body, params["boundary"], func(name string, from io.Reader) error { return put(cmp.Or(to, name), from) })
		if err == nil && len(all) == 0 {
			err = api.Invalid("body", "the form has no file")
		}
	} else {
		err = put(to, body)
	}
	if err != nil {
		WriteError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, all)
}

// composeRequest joins files that were written in parts.
type composeRequest struct {
	Sources     []string `json:"source_paths"`
	Destination string   `json:"destination"`
	User        string   `json:"username"`
}

// compose makes one file of several, in their order, and removes them. It writes beside the destination, which may be
// among them and stays as it was if one of them cannot be read.
func (c *contents) compose(w http.ResponseWriter, r *http.Request) {
	s := contentsOf(r)
	var in composeRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxMessage)).Decode(&in); err != nil || in.Destination == "" || len(in.Sources) == 0 {
		WriteError(w, api.Invalid("body", "it is not an object with source_paths and destination"))
		return
	}
	s.User = cmp.Or(in.User, s.User)
	from := &joined{sources: in.Sources, open: func(p string) (io.ReadCloser, error) { return c.svc.OpenFile(r.Context(), s.ID, s.ref(p)) }}
	defer from.Close()
	made, err := c.svc.WriteFile(r.Context(), s.ID, api.WriteRequest{FileRef: s.ref(in.Destination), Parents: true, Atomic: true}, from)
	if err = cmp.Or(from.failed, err); err != nil {
		WriteError(w, err)
		return
	}
	for _, p := range in.Sources {
		ref := s.ref(p)
		ref.NoFollow = true
		if f, err := c.svc.StatFile(r.Context(), s.ID, ref); err == nil && f.ETag != "" && f.ETag == made.ETag {
			continue // the destination, by whatever name
		}
		if _, err := c.remove(r.Context(), s, &pathRequest{p}); err != nil {
			WriteError(w, err)
			return
		}
	}
	p := s.absolute(in.Destination)
	writeJSON(w, http.StatusOK, written{Name: path.Base(p), Type: "file", Path: p})
}

// joined reads files one after the other.
type joined struct {
	sources []string // that are left
	open    func(string) (io.ReadCloser, error)
	file    io.ReadCloser
	failed  error
}

// Read implements io.Reader.
func (j *joined) Read(b []byte) (int, error) {
	for {
		if j.file == nil {
			if len(j.sources) == 0 {
				return 0, io.EOF
			}
			if j.file, j.failed = j.open(j.sources[0]); j.failed != nil {
				j.file = nil
				return 0, j.failed
			}
			j.sources = j.sources[1:]
		}
		n, err := j.file.Read(b)
		if err == io.EOF {
			err = j.Close()
		}
		if n > 0 || err != nil {
			j.failed = err
			return n, err
		}
	}
}

// Close closes the file that is being read.
func (j *joined) Close() error {
	if j.file == nil {
		return nil
	}
	err := j.file.Close()
	j.file = nil
	return err
}

// fileName returns the name of a part of a form with the directories in it, which package multipart leaves out.
func fileName(disposition string) string {
	_, params, err := mime.ParseMediaType(disposition)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(params["filename"])
}
