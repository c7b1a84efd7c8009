package control

import (
	"context"
	"net/http"
	"slices"

	"ramet.dev/ramet/internal/server/rest/answer"
	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// images serves the images that sandboxes are made of.
type images struct {
	*stream.Streams
	svc service.Images
}

type imageInput struct {
	Ref string `path:"ref" doc:"id or name; slashes may be percent-encoded"`
}

type imagesInput struct {
	route.PageInput
	route.ReachInput
	Name string `query:"name" doc:"only the image of this name"`
}

type pruneInput struct{ Body *api.PruneRequest }

type imageCreateInput struct {
	Accept string `header:"Accept" hidden:"true"`
	Body   api.ImageRequest
}

func (h *images) routeImages(r *route.Router) {
	const tag = "images"
	create := route.Operation(http.MethodPost, "/v1/images", "create-image", tag, "Build, import or pull an image",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusNoStorage)
	route.RegisterStream(r, route.WithStatus(create, http.StatusCreated), imageResponses(r),
		func(in *imageCreateInput) error { return in.Body.Valid() }, h.createImage)
	route.Register(r, route.Operation(http.MethodGet, "/v1/images", "list-images", tag, "List images"), h.listImages)
	route.Register(r, route.Operation(http.MethodGet, "/v1/images/{ref}", "get-image", tag, "Get an image", route.StatusNotFound), h.getImage)
	route.Register(r, route.Operation(http.MethodDelete, "/v1/images/{ref}", "remove-image", tag, "Remove an image, or one of its names",
		route.StatusNotFound, route.StatusConflict), h.removeImage)
	route.Register(r, route.Operation(http.MethodPost, "/v1/images/prune", "prune-images", tag, "Remove unused images without a name, and on request cached packages",
		route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported),
		func(ctx context.Context, in *pruneInput) (*route.Out[*api.Pruned], error) {
			pruned, err := h.svc.PruneImages(ctx, route.Present(in.Body))
			return route.Answer(pruned, err)
		})
}

// imageResponses documents the answers of the operations that make an image.
func imageResponses(r *route.Router) map[string]*huma.Response {
	return progressResponses(r, http.StatusCreated, httpwire.EventImage, api.Image{})
}

func (h *images) createImage(w http.ResponseWriter, r *http.Request, in *imageCreateInput) {
	makeImage(h.Streams, w, r, in.Accept, func(ctx context.Context, progress func(api.Progress)) (*api.Image, error) {
		return h.svc.CreateImage(ctx, in.Body, progress)
	})
}

// makeImage answers with an image, and before it with the progress of making it if
// the client accepts events.
func makeImage(s *stream.Streams, w http.ResponseWriter, r *http.Request, accept string, work func(context.Context, func(api.Progress)) (*api.Image, error)) {
	withProgress(s, w, r, accept, http.StatusCreated, httpwire.EventImage, func(ctx context.Context, progress func(api.Progress)) (*api.Image, error) {
		img, err := work(ctx, progress)
		if err != nil {
			return nil, err
		}
		return namedImage(img), nil
	})
}

// withProgress answers with the result of work, as JSON with a status, or as an event after those of
// the progress if the client accepts events.
func withProgress[T any](s *stream.Streams, w http.ResponseWriter, r *http.Request, accept string, status int, event string, work func(context.Context, func(api.Progress)) (T, error)) {
	if !stream.AcceptsEvents(accept) {
		res, err := work(r.Context(), func(api.Progress) {})
		if err != nil {
			s.WriteProblem(w, r, err)
			return
		}
		answer.WriteJSON(w, status, "application/json", res)
		return
	}
	events, ctx := stream.NewEvents(w, r)
	defer events.Close()
	res, err := work(ctx, func(p api.Progress) { events.Send(httpwire.EventProgress, p) })
	if err != nil {
		s.EndEvents(events, r, err)
		return
	}
	events.Send(event, res)
}

func (h *images) listImages(ctx context.Context, in *imagesInput) (*route.Out[httpwire.List[api.Image]], error) {
	ctx, err := in.Reach(ctx)
	if err != nil {
		return nil, err
	}
	all, err := h.svc.Images(ctx)
	if err != nil {
		return nil, err
	}
	if in.Name != "" {
		all = slices.DeleteFunc(all, func(i api.Image) bool { return !slices.Contains(i.Names, in.Name) })
	}
	for i := range all {
		namedImage(&all[i])
	}
	return route.PageOf(all, in.PageInput, func(i *api.Image) route.PageKey { return route.KeyOf(i.CreatedAt, i.ID) }), nil
}

func (h *images) getImage(ctx context.Context, in *imageInput) (*route.Out[*api.Image], error) {
	if err := api.ValidImageRef("ref", in.Ref); err != nil {
		return nil, err
	}
	img, err := h.svc.GetImage(ctx, in.Ref)
	if err != nil {
		return nil, err
	}
	return route.Answer(namedImage(img), nil)
}

func (h *images) removeImage(ctx context.Context, in *imageInput) (*struct{}, error) {
	if err := api.ValidImageRef("ref", in.Ref); err != nil {
		return nil, err
	}
	return nil, h.svc.RemoveImage(ctx, in.Ref)
}

// namedImage makes the names of an image without names an empty list.
func namedImage(img *api.Image) *api.Image {
	img.Names = route.List(img.Names)
	return img
}
