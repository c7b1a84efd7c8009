package control

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
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
	WithEngine   bool `query:"with_engine" doc:"with the program that loads the state, for machines with another version of Ramet"`
	Sign         bool `query:"sign" doc:"sign it with the key of the tenant"`
}

type pushInput struct {
	route.IDInput
	Accept string `header:"Accept" hidden:"true"`
	Body   api.PushRequest
}

type pullInput struct {
	Accept string `header:"Accept" hidden:"true"`
	Body   api.PullRequest
}

type unpackInput struct {
	Name  string   `query:"name" minLength:"1" doc:"name of the snapshot, unique among those of the tenant; if absent, the name that it was packed with"`
	Trust []string `query:"trust,explode" maxItems:"64" doc:"public keys, one of which must have signed the snapshot; none for any snapshot"`
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
	op.Parameters = nil // a key would need the body to be kept
	op.RequestBody = &huma.RequestBody{Required: true, Content: route.BytesOf(stream.TarType)}
	made := map[string]*huma.Response{strconv.Itoa(http.StatusCreated): {Description: http.StatusText(http.StatusCreated), Content: route.JSONContent(r, api.Snapshot{})}}
	route.RegisterStream(r, op, made, func(in *unpackInput) error { return api.ValidOptionalName("name", in.Name) }, h.unpack)
	route.Register(r, route.Operation(http.MethodGet, "/v1/signing-key", "get-signing-key", tag, "Get the key that signs snapshots"), func(ctx context.Context, _ *struct{}) (*route.Out[*api.SigningKey], error) {
		key, err := h.svc.SigningKey(ctx)
		return route.Answer(key, err)
	})
	route.RegisterStream(r, route.Operation(http.MethodPost, "/v1/snapshots/{id}/push", "push-snapshot", tag, "Send a snapshot to a registry",
		route.StatusNotFound, route.StatusConflict, route.StatusUnsupported, route.StatusTooMany, route.StatusNoStorage),
		progressResponses(r, http.StatusOK, httpwire.EventPushed, api.PushResult{}),
		func(in *pushInput) error { return route.ValidSnapshot("id", in.ID) }, h.push)
	route.RegisterStream(r, route.WithStatus(route.Operation(http.MethodPost, "/v1/snapshots/pull", "pull-snapshot", tag, "Make a snapshot of one in a registry",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany, route.StatusNoStorage), http.StatusCreated),
		progressResponses(r, http.StatusCreated, httpwire.EventSnapshot, api.Snapshot{}),
		func(in *pullInput) error { return api.ValidOptionalName("name", in.Body.Name) }, h.pull)
}

func (h *packs) pack(w http.ResponseWriter, r *http.Request, in *packInput) {
	body := h.Archive(w, stream.TarType)
	defer body.Close()
	out := bufio.NewWriterSize(body, exportBuffer)
	err := h.svc.Pack(r.Context(), in.ID, api.PackRequest{WithoutImage: in.WithoutImage, WithEngine: in.WithEngine, Sign: in.Sign}, out)
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

// progressResponses documents an answer with a status, or with events of the progress before it.
func progressResponses(r *route.Router, status int, event string, of any) map[string]*huma.Response {
	name := strings.TrimPrefix(fmt.Sprintf("%T", of), "api.")
	events := route.EventContent(r, "Events `progress` (Progress), then one `"+event+"` ("+name+") or `error` (Problem).", route.EventData{
		httpwire.EventProgress: api.Progress{}, event: of, httpwire.EventError: httpwire.Problem{},
	})
	all := map[string]*huma.Response{"200": {Description: "Progress, if events are accepted", Content: map[string]*huma.MediaType{httpwire.EventType: events}}}
	if status == http.StatusOK {
		all["200"].Content["application/json"] = route.JSONContent(r, of)["application/json"]
	} else {
		all[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status), Content: route.JSONContent(r, of)}
	}
	return all
}

func (h *packs) push(w http.ResponseWriter, r *http.Request, in *pushInput) {
	withProgress(h.Streams, w, r, in.Accept, http.StatusOK, httpwire.EventPushed, func(ctx context.Context, progress func(api.Progress)) (*api.PushResult, error) {
		return h.svc.Push(ctx, in.ID, in.Body, progress)
	})
}

func (h *packs) pull(w http.ResponseWriter, r *http.Request, in *pullInput) {
	withProgress(h.Streams, w, r, in.Accept, http.StatusCreated, httpwire.EventSnapshot, func(ctx context.Context, progress func(api.Progress)) (*api.Snapshot, error) {
		return h.svc.Pull(ctx, in.Body, progress)
	})
}

func (h *packs) unpack(w http.ResponseWriter, r *http.Request, in *unpackInput) {
	body, done := stream.Upload(w, r)
	snap, err := h.svc.Unpack(r.Context(), body, api.UnpackRequest{Name: in.Name, Trust: in.Trust})
	done()
	if err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	answer.WriteJSON(w, http.StatusCreated, "application/json", snap)
}
