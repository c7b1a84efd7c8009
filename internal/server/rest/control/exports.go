package control

import (
	"bufio"
	"cmp"
	"context"
	"net/http"

	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// exports serves the files of sandboxes and snapshots, as archives and as new images.
type exports struct {
	*stream.Streams
	svc exportService
}

type exportService interface {
	service.Images
	service.Snapshots
}

type exportInput struct {
	ID     string `path:"id" doc:"id or name"`
	Format string `query:"format" enum:"layer,oci,tar" default:"layer" doc:"layer: the differences from the image, as a layer on top of it; oci: archive of an OCI image layout; tar: all files"`
	Gzip   bool   `query:"gzip" doc:"compress the result; of an OCI archive, its layers"`
}

type commitInput struct {
	ID     string `path:"id" doc:"id or name"`
	Accept string `header:"Accept" hidden:"true"`
	Body   api.CommitRequest
}

// validKind checks a reference of one kind.
type validKind func(ref string) error

func (h *exports) routeExports(r *route.Router) {
	const tag = "exports"
	snapshot := func(ref string) error { return route.ValidSnapshot("id", ref) }
	either := func(ref string) error { return api.ValidSource("id", ref) }
	for _, on := range []struct {
		kind, id, doc string
		valid         validKind
		resolve       func(ctx context.Context, ref string) (string, error)
	}{
		{"sandboxes", "sandbox", "sandbox, or of a snapshot", either, nil},
		{"snapshots", "snapshot", "snapshot", snapshot, h.snapshotID},
	} {
		op := route.Operation(http.MethodGet, "/v1/"+on.kind+"/{id}/export", "export-"+on.id, tag, "Export the files of a "+on.doc+" as a tar", route.StatusNotFound, route.StatusConflict, route.StatusTooMany)
		route.RegisterStream(r, op, archiveResponse(), func(in *exportInput) error { return on.valid(in.ID) }, func(w http.ResponseWriter, r *http.Request, in *exportInput) {
			h.export(w, r, in, on.resolve)
		})
		op = route.Operation(http.MethodPost, "/v1/"+on.kind+"/{id}/commit", "commit-"+on.id, tag, "Make an image of the files of a "+on.doc,
			route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusNoStorage)
		route.RegisterStream(r, route.WithStatus(op, http.StatusCreated), imageResponses(r),
			func(in *commitInput) error { return cmp.Or(on.valid(in.ID), in.Body.Valid()) },
			func(w http.ResponseWriter, r *http.Request, in *commitInput) { h.commit(w, r, in, on.resolve) })
	}
}

// archiveResponse documents an answer that is a tar.
func archiveResponse() map[string]*huma.Response {
	return map[string]*huma.Response{"200": {
		Description: "The archive. An archive that is cut off ends without the end of its HTTP message.",
		Content:     route.BytesOf(stream.TarType, typeGzip),
	}}
}

// snapshotID returns the id of a snapshot, whose name a sandbox may have too.
func (h *exports) snapshotID(ctx context.Context, ref string) (string, error) {
	s, err := h.svc.GetSnapshot(ctx, ref)
	if err != nil {
		return "", err
	}
	return s.ID, nil
}

// typeGzip is the media type of an export that is compressed as a whole.
const typeGzip = "application/gzip"

// exportBuffer is the size of a piece that is sent, in bytes: archives are written in small
// pieces.
const exportBuffer = 256 << 10

func (h *exports) export(w http.ResponseWriter, r *http.Request, in *exportInput, resolve func(context.Context, string) (string, error)) {
	ref := in.ID
	if resolve != nil {
		var err error
		if ref, err = resolve(r.Context(), ref); err != nil {
			h.WriteProblem(w, r, err)
			return
		}
	}
	req := api.ExportRequest{Format: api.ExportFormat(in.Format), Gzip: in.Gzip}
	body := h.Archive(w, stream.TarType)
	defer body.Close()
	if req.Gzip && req.Format != api.ExportOCI {
		body.MediaType = typeGzip
	}
	out := bufio.NewWriterSize(body, exportBuffer)
	err := h.svc.Export(r.Context(), ref, req, out)
	if err == nil {
		err = out.Flush()
	}
	endArchive(h.Streams, w, r, body, err)
}

// endArchive ends an answer that is an archive.
func endArchive(h *stream.Streams, w http.ResponseWriter, r *http.Request, body *stream.Archive, err error) {
	switch {
	case err == nil:
	case !body.Begun:
		h.WriteProblem(w, r, err)
	default:
		h.Problem(r.Context(), err) // to the log, if it is a defect
		panic(http.ErrAbortHandler) // only this tells the client that the answer is not complete
	}
}

func (h *exports) commit(w http.ResponseWriter, r *http.Request, in *commitInput, resolve func(context.Context, string) (string, error)) {
	makeImage(h.Streams, w, r, in.Accept, func(ctx context.Context, progress func(api.Progress)) (*api.Image, error) {
		ref := in.ID
		if resolve != nil {
			var err error
			if ref, err = resolve(ctx, ref); err != nil {
				return nil, err
			}
		}
		return h.svc.Commit(ctx, ref, in.Body, progress)
	})
}
