package dataplane

import (
	"cmp"
	"fmt"
	"net/http"
	"path"
	"strings"

	"ramet.dev/ramet/internal/server/rest/answer"
	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// octets is the media type of the contents of a file.
const octets = "application/octet-stream"

type readInput struct {
	FileInput
	Range       string `header:"Range" doc:"bytes=first-last, as in RFC 9110; several ranges are answered as multipart/byteranges"`
	IfNoneMatch string `header:"If-None-Match" doc:"ETag that the client has"`
}

type writeInput struct {
	FileInput
	ModeInput
	Atomic  bool `query:"atomic" doc:"write a new file and replace the old one when all bytes have arrived"`
	Append  bool `query:"append" doc:"append to the end of the file"`
	Parents bool `query:"parents" doc:"make missing directories above it"`
	ConditionInput
	IfNoneMatch string `header:"If-None-Match" doc:"ETags of which the file must have none, or * if it must not exist; as in RFC 9110"`
}

type extractInput struct {
	FileInput
	Parents bool `query:"parents" doc:"make the directory, and missing directories above it"`
}

// routeContents adds the routes whose bodies are not JSON.
func (h *files) routeContents(r *route.Router, files string, onFile func(method, path, id, summary string, errors ...int) huma.Operation) {
	response := func(status int, content map[string]*huma.MediaType) map[string]*huma.Response {
		return map[string]*huma.Response{fmt.Sprint(status): {Description: http.StatusText(status), Content: content}}
	}
	contents := func(content map[string]*huma.MediaType) map[string]*huma.Response {
		all := response(http.StatusOK, content)
		for _, status := range []int{http.StatusPartialContent, http.StatusNotModified} {
			all[fmt.Sprint(status)] = &huma.Response{Description: http.StatusText(status)}
		}
		if content != nil {
			all[fmt.Sprint(http.StatusPartialContent)].Content = route.BytesOf(octets, "multipart/byteranges")
		}
		return all
	}
	withBody := func(op huma.Operation, mediaType string) huma.Operation {
		op.RequestBody = &huma.RequestBody{Required: true, Content: route.BytesOf(mediaType)}
		return op
	}
	written := response(http.StatusOK, route.JSONContent(r, api.FileInfo{}))
	written[fmt.Sprint(http.StatusCreated)] = response(http.StatusCreated, route.JSONContent(r, api.FileInfo{}))[fmt.Sprint(http.StatusCreated)]
	unsatisfiable := http.StatusRequestedRangeNotSatisfiable
	route.RegisterStream(r, onFile(http.MethodGet, files, "read-file", "Read a regular file, whole or in ranges", unsatisfiable),
		contents(route.BytesOf(octets)), checkRead, h.readFile)
	route.RegisterStream(r, onFile(http.MethodHead, files, "head-file", "Describe the contents of a regular file", unsatisfiable),
		contents(nil), checkRead, h.readFile)
	route.RegisterStream(r, withBody(onFile(http.MethodPut, files, "write-file", "Write a regular file", route.StatusNoStorage, http.StatusPreconditionFailed, route.StatusUnsupported), octets),
		written, func(in *writeInput) error { return route.ValidSandbox(in.ID) }, h.writeFile)
	route.RegisterStream(r, onFile(http.MethodGet, files+"/archive", "read-archive", "Read a file or directory as an archive"),
		response(http.StatusOK, route.BytesOf(stream.TarType)), func(in *FileInput) error { return route.ValidSandbox(in.ID) }, h.readArchive)
	route.RegisterStream(r, withBody(onFile(http.MethodPut, files+"/archive", "write-archive", "Unpack an archive below a directory", route.StatusNoStorage), stream.TarType),
		response(http.StatusOK, route.JSONContent(r, api.ExtractResult{})), func(in *extractInput) error { return route.ValidSandbox(in.ID) }, h.writeArchive)
}

func checkRead(in *readInput) error { return route.ValidSandbox(in.ID) }

func (h *files) readFile(w http.ResponseWriter, r *http.Request, in *readInput) {
	f, err := h.svc.OpenFile(r.Context(), in.ID, in.file())
	if err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	defer f.Close()
	info := f.Info()
	if r.Method == http.MethodHead {
		r.Header.Del("Range") // it is defined for GET only
	}
	header := w.Header()
	header.Set("Content-Type", octets)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("ETag", quoteETag(info.ETag))
	header.Set(httpwire.FileModeHeader, info.Mode)
	// It knows ranges and conditions. An error while it copies ends the
	// connection, as less was sent than announced.
	http.ServeContent(&problemWriter{ResponseWriter: w, Reporter: h.Reporter, r: r}, r, path.Base(info.Path), info.MTime, f)
}

// problemWriter turns the error pages of the standard library into problems.
type problemWriter struct {
	http.ResponseWriter
	*answer.Reporter
	r    *http.Request
	done bool
}

// WriteHeader implements http.ResponseWriter.
func (w *problemWriter) WriteHeader(status int) {
	if status < http.StatusBadRequest {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.done = true
	w.Header().Del("Content-Length")
	var err error
	switch status {
	case http.StatusPreconditionFailed:
		err = api.Errorf(api.CodeChanged, "the file does not meet the conditions of the request")
	case http.StatusRequestedRangeNotSatisfiable:
		what := "a range is FIRST-LAST, of bytes"
		if size := w.Header().Get("Content-Range"); size != "" {
			what = size
		}
		err = httpwire.NewStatusProblem(status, "the range is not in the file: %s", what)
	default:
		err = httpwire.NewStatusProblem(status, "the request's headers make no sense together")
	}
	w.WriteProblem(w.ResponseWriter, w.r, err)
}

// Write implements io.Writer.
func (w *problemWriter) Write(p []byte) (int, error) {
	if w.done {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

func (h *files) writeFile(w http.ResponseWriter, r *http.Request, in *writeInput) {
	tags, err := in.tags()
	none, mustBeNew, noneErr := in.noneOf()
	if err := cmp.Or(err, noneErr, wholeFile(r.Header)); err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	body, done := stream.Upload(w, r)
	info, err := h.svc.WriteFile(r.Context(), in.ID, api.WriteRequest{
		FileRef: in.file(), Mode: in.mode(), Atomic: in.Atomic, Append: in.Append, Parents: in.Parents,
		IfMatch: tags, IfNoneMatch: none, New: mustBeNew,
	}, body)
	done()
	if err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	w.Header().Set("ETag", quoteETag(info.ETag))
	status := http.StatusOK
	if info.Created {
		status = http.StatusCreated
	}
	answer.WriteJSON(w, status, "application/json", info)
}

// wholeFile refuses a body that is a part of a file, or encoded: it would replace the whole
// file.
func wholeFile(h http.Header) error {
	if part := h.Get("Content-Range"); part != "" {
		return api.Invalid("Content-Range", "files are written whole, or with append to their end, and not in parts such as %q", part)
	}
	if coding := h.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return httpwire.NewStatusProblem(http.StatusUnsupportedMediaType, "a file is sent as it is, not with the coding %q", coding)
	}
	return nil
}

func (h *files) writeArchive(w http.ResponseWriter, r *http.Request, in *extractInput) {
	body, done := stream.Upload(w, r)
	res, err := h.svc.WriteArchive(r.Context(), in.ID, in.file(), in.Parents, body)
	done()
	if err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	answer.WriteJSON(w, http.StatusOK, "application/json", res)
}

func (h *files) readArchive(w http.ResponseWriter, r *http.Request, in *FileInput) {
	out := h.Archive(w, stream.TarType)
	defer out.Close()
	err := h.svc.ReadArchive(r.Context(), in.ID, in.file(), out)
	switch {
	case err == nil:
	case !out.Begun:
		h.WriteProblem(w, r, err)
	default:
		panic(http.ErrAbortHandler) // the client must not take its part for the whole
	}
}
