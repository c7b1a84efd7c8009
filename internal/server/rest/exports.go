package rest

import (
	"bufio"
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
)

type exportInput struct {
	ID     string `path:"id" doc:"id or name"`
	Format string `query:"format" enum:"layer,oci,tar" default:"layer" doc:"layer: what differs from the image, as a layer on top of it; oci: archive of an OCI image layout; tar: all files"`
	Gzip   bool   `query:"gzip" doc:"compressed; of an archive, its layers"`
}

type commitInput struct {
	ID     string `path:"id" doc:"id or name"`
	Accept string `header:"Accept" hidden:"true"`
	Body   api.CommitRequest
}

// validKind checks a reference of one kind.
type validKind func(ref string) error

func (a *API) routeExports() {
	const tag = "exports"
	snapshot := func(ref string) error { return validSnapshot("id", ref) }
	either := func(ref string) error { return validSide("id", ref) }
	for _, on := range []struct {
		kind, id, doc string
		valid         validKind
		resolve       func(ctx context.Context, ref string) (string, error)
	}{
		{"sandboxes", "sandbox", "sandbox, or of a snapshot", either, nil},
		{"snapshots", "snapshot", "snapshot", snapshot, a.snapshotID},
	} {
		op := operation(http.MethodGet, "/v1/"+on.kind+"/{id}/export", "export-"+on.id, tag, "The files of a "+on.doc+", as a tar", statusNotFound, statusConflict, statusTooMany)
		registerStream(a, op, archiveResponse(), func(in *exportInput) error { return on.valid(in.ID) }, func(w http.ResponseWriter, r *http.Request, in *exportInput) {
			a.export(w, r, in, on.resolve)
		})
		op = operation(http.MethodPost, "/v1/"+on.kind+"/{id}/commit", "commit-"+on.id, tag, "Make an image of the files of a "+on.doc,
			statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusNoStorage)
		registerStream(a, withStatus(op, http.StatusCreated), imageResponses(a),
			func(in *commitInput) error { return cmp.Or(on.valid(in.ID), validImageRef("name", in.Body.Name)) },
			func(w http.ResponseWriter, r *http.Request, in *commitInput) { a.commit(w, r, in, on.resolve) })
	}
}

// archiveResponse documents an answer that is a tar.
func archiveResponse() map[string]*huma.Response {
	return map[string]*huma.Response{"200": {
		Description: "The archive. One that is cut off ends without the end of its HTTP message.",
		Content:     bytesOf(tarType, typeGzip),
	}}
}

// snapshotID returns the id of a snapshot, whose name a sandbox may have too.
func (a *API) snapshotID(ctx context.Context, ref string) (string, error) {
	s, err := a.svc.GetSnapshot(ctx, ref)
	if err != nil {
		return "", err
	}
	return s.ID, nil
}

// typeGzip is the media type of an export that is compressed as a whole.
const typeGzip = "application/gzip"

// exportBuffer is how much is collected before it is sent, in bytes: archives come
// in small pieces.
const exportBuffer = 256 << 10

func (a *API) export(w http.ResponseWriter, r *http.Request, in *exportInput, resolve func(context.Context, string) (string, error)) {
	ref := in.ID
	if resolve != nil {
		var err error
		if ref, err = resolve(r.Context(), ref); err != nil {
			a.writeProblem(w, r, err)
			return
		}
	}
	req := api.ExportRequest{Format: api.ExportFormat(in.Format), Gzip: in.Gzip}
	body := a.archiveBody(w, tarType)
	defer body.end()
	if req.Gzip && req.Format != api.ExportOCI {
		body.mediaType = typeGzip
	}
	out := bufio.NewWriterSize(body, exportBuffer)
	err := a.svc.Export(r.Context(), ref, req, out)
	if err == nil {
		err = out.Flush()
	}
	switch {
	case err == nil:
	case !body.begun:
		a.writeProblem(w, r, err)
	default:
		a.problem(r.Context(), err) // to the log, if it is a defect
		panic(http.ErrAbortHandler) // nothing else tells the client that this is not all
	}
}

// readTimeout is how long a client may take to read a piece of an archive: one who reads
// nothing would keep the turns of others, and what is pinned, for ever.
const readTimeout = time.Minute

// archiveBody begins an answer with its first write.
type archiveBody struct {
	w         http.ResponseWriter
	conn      *http.ResponseController
	timeout   time.Duration // of each write
	mediaType string
	begun     bool
}

func (a *API) archiveBody(w http.ResponseWriter, mediaType string) *archiveBody {
	return &archiveBody{w: w, conn: http.NewResponseController(w), timeout: a.readTimeout, mediaType: mediaType}
}

// end leaves the connection for other answers.
func (b *archiveBody) end() { _ = b.conn.SetWriteDeadline(time.Time{}) } // there is none in tests

// Write implements io.Writer.
func (b *archiveBody) Write(p []byte) (int, error) {
	_ = b.conn.SetWriteDeadline(time.Now().Add(b.timeout)) // likewise
	if !b.begun {
		b.begun = true
		b.w.Header().Set("Content-Type", b.mediaType)
		b.w.WriteHeader(http.StatusOK)
	}
	return b.w.Write(p)
}

func (a *API) commit(w http.ResponseWriter, r *http.Request, in *commitInput, resolve func(context.Context, string) (string, error)) {
	a.makeImage(w, r, in.Accept, func(ctx context.Context, progress func(api.Progress)) (*api.Image, error) {
		ref := in.ID
		if resolve != nil {
			var err error
			if ref, err = resolve(ctx, ref); err != nil {
				return nil, err
			}
		}
		return a.svc.Commit(ctx, ref, in.Body, progress)
	})
}
