package rest

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

type imageInput struct {
	Ref string `path:"ref" doc:"id or name; slashes may be percent-encoded"`
}

type imagesInput struct {
	PageInput
	ReachInput
	Name string `query:"name" doc:"only the image of this name"`
}

type pruneInput struct{ Body *api.PruneRequest }

type imageCreateInput struct {
	Accept string `header:"Accept" hidden:"true"`
	Body   api.ImageRequest
}

func (a *API) routeImages() {
	const tag = "images"
	create := operation(http.MethodPost, "/v1/images", "create-image", tag, "Build, import or pull an image",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusNoStorage)
	registerStream(a, withStatus(create, http.StatusCreated), imageResponses(a),
		func(in *imageCreateInput) error { return validImageRequest(in.Body) }, a.createImage)
	register(a, operation(http.MethodGet, "/v1/images", "list-images", tag, "List images"), a.listImages)
	register(a, operation(http.MethodGet, "/v1/images/{ref}", "get-image", tag, "Look at an image", statusNotFound), a.getImage)
	register(a, operation(http.MethodDelete, "/v1/images/{ref}", "remove-image", tag, "Remove an image, or one of its names",
		statusNotFound, statusConflict), a.removeImage)
	register(a, operation(http.MethodPost, "/v1/images/prune", "prune-images", tag, "Remove the images that have no name any more and that nothing is made of, and cached packages if asked for",
		statusConflict, statusTooLarge, statusUnsupported),
		func(ctx context.Context, in *pruneInput) (*out[*api.Pruned], error) {
			pruned, err := a.svc.PruneImages(ctx, present(in.Body))
			return &out[*api.Pruned]{pruned}, err
		})
}

// imageResponses documents the answers of what makes an image.
func imageResponses(a *API) map[string]*huma.Response {
	return map[string]*huma.Response{
		"200": {Description: "Progress, if events are accepted", Content: map[string]*huma.MediaType{
			httpwire.EventType: eventContent(a, "Events `progress` (Progress), then one `image` (Image) or `error` (Problem).", events{
				httpwire.EventProgress: api.Progress{}, httpwire.EventImage: api.Image{}, httpwire.EventError: httpwire.Problem{},
			}),
		}},
		"201": {Description: http.StatusText(http.StatusCreated), Content: jsonContent(a, api.Image{})},
	}
}

func (a *API) createImage(w http.ResponseWriter, r *http.Request, in *imageCreateInput) {
	a.makeImage(w, r, in.Accept, func(ctx context.Context, progress func(api.Progress)) (*api.Image, error) {
		return a.svc.CreateImage(ctx, in.Body, progress)
	})
}

// makeImage answers with an image, and before it with the progress of making it if
// the client accepts events.
func (a *API) makeImage(w http.ResponseWriter, r *http.Request, accept string, work func(context.Context, func(api.Progress)) (*api.Image, error)) {
	if !acceptsEvents(accept) {
		img, err := work(r.Context(), func(api.Progress) {})
		if err != nil {
			a.writeProblem(w, r, err)
			return
		}
		writeJSON(w, http.StatusCreated, "application/json", namedImage(img))
		return
	}
	events, ctx := newEventWriter(w, r)
	defer events.close()
	img, err := work(ctx, func(p api.Progress) { events.send(httpwire.EventProgress, p) })
	if err != nil {
		a.endEvents(events, r, err)
		return
	}
	events.send(httpwire.EventImage, namedImage(img))
}

func (a *API) listImages(ctx context.Context, in *imagesInput) (*out[httpwire.List[api.Image]], error) {
	ctx, err := in.reach(ctx)
	if err != nil {
		return nil, err
	}
	all, err := a.svc.Images(ctx)
	if err != nil {
		return nil, err
	}
	if in.Name != "" {
		all = slices.DeleteFunc(all, func(i api.Image) bool { return !slices.Contains(i.Names, in.Name) })
	}
	for i := range all {
		namedImage(&all[i])
	}
	return pageOf(all, in.PageInput, func(i *api.Image) pageKey { return keyOf(i.CreatedAt, i.ID) }), nil
}

func (a *API) getImage(ctx context.Context, in *imageInput) (*out[*api.Image], error) {
	if err := validImageRef("ref", in.Ref); err != nil {
		return nil, err
	}
	img, err := a.svc.GetImage(ctx, in.Ref)
	if err != nil {
		return nil, err
	}
	return &out[*api.Image]{namedImage(img)}, nil
}

func (a *API) removeImage(ctx context.Context, in *imageInput) (*struct{}, error) {
	if err := validImageRef("ref", in.Ref); err != nil {
		return nil, err
	}
	return nil, a.svc.RemoveImage(ctx, in.Ref)
}

// namedImage makes the names of an image that has none an empty list.
func namedImage(img *api.Image) *api.Image {
	img.Names = list(img.Names)
	return img
}
