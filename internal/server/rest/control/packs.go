package control

import (
	"bufio"
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/answer"
	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"
	"ramet.dev/ramet/internal/service"
)

// packs serves snapshots that leave this machine and arrive at it.
type packs struct {
	*stream.Streams
	svc service.Snapshots
}

type packInput struct {
	route.IDInput
	WithoutImage bool `query:"without_image" doc:"leave the image out: it must be where the snapshot is unpacked"`
}

type unpackInput struct {
	Name string `query:"name" minLength:"1" doc:"name of the snapshot, unique among those of the tenant; if absent, the name that it was packed with"`
}

func (h *packs) routePacks(r *route.Router) {
	const tag = "snapshots"
	valid := func(in *packInput) error { return route.ValidSnapshot("id", in.ID) }
	op := route.Operation(http.MethodGet, "/v1/snapshots/{id}/pack", "pack-snapshot", tag, "Pack a snapshot for other machines", route.StatusNotFound, route.StatusConflict, route.StatusUnsupported, route.StatusTooMany, route.StatusNoStorage)
	packed := map[string]*huma.Response{"200": {
		Description: "The packed snapshot. An archive that is cut off ends without the end of its HTTP message.",
		Content:     route.BytesOf(stream.TarType),
	}}
	route.RegisterStream(r, op, packed, valid, h.pack)
	route.Register(r, route.Operation(http.MethodGet, "/v1/snapshots/{id}/pack/contents", "list-pack-contents", tag, "List what a packed snapshot contains",
		route.StatusNotFound, route.StatusConflict, route.StatusUnsupported), h.contents)
	op = route.WithStatus(route.Operation(http.MethodPost, "/v1/snapshots/unpack", "unpack-snapshot", tag, "Make a snapshot of a packed one",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany, route.StatusNoStorage), http.StatusCreated)
	op.RequestBody = &huma.RequestBody{Required: true, Content: route.BytesOf(stream.TarType)}
	made := map[string]*huma.Response{strconv.Itoa(http.StatusCreated): {Description: http.StatusText(http.StatusCreated), Content: route.JSONContent(r, api.Snapshot{})}}
	route.RegisterStream(r, op, made, func(in *unpackInput) error { return api.ValidOptionalName("name", in.Name) }, h.unpack)
}

func (h *packs) pack(w http.ResponseWriter, r *http.Request, in *packInput) {
	body := h.Archive(w, stream.TarType)
	defer body.Close()
	out := bufio.NewWriterSize(body, exportBuffer)
	err := h.svc.Pack(r.Context(), in.ID, api.PackRequest{WithoutImage: in.WithoutImage}, out)
	if err == nil {
		err = out.Flush()
	}
	endArchive(h.Streams, w, r, body, err)
}

func (h *packs) contents(ctx context.Context, in *route.IDInput) (*route.Out[*api.PackContents], error) {
	if err := route.ValidSnapshot("id", in.ID); err != nil {
		return nil, err
	}
	c, err := h.svc.PackContents(ctx, in.ID)
	return route.Answer(c, err)
}

func (h *packs) unpack(w http.ResponseWriter, r *http.Request, in *unpackInput) {
	body, done := stream.Upload(w, r)
	snap, err := h.svc.Unpack(r.Context(), body, api.UnpackRequest{Name: in.Name})
	done()
	if err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	answer.WriteJSON(w, http.StatusCreated, "application/json", snap)
}
