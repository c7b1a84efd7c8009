package control

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// explorations serves forks that try something.
type explorations struct {
	*stream.Streams
	svc service.Explorations
}

type exploreInput struct {
	route.IDInput
	Wait bool `query:"wait" doc:"answer with 200 when the exploration has ended, not with 202 when its first attempts are there; it goes on if the client goes away"`
	Body api.ExplorePlan
}

type exploreOut struct {
	Status int
	Body   *api.Exploration
}

type explorationsInput struct {
	route.PageInput
	Sandbox string               `query:"sandbox" doc:"only explorations of this sandbox, by id or name"`
	State   api.ExplorationState `query:"state" enum:"running,finishing,done,failed,canceled,interrupted" doc:"only explorations in this state"`
}

// ExplorationInput names an exploration. It is exported because the framework passes over embedded
// types that are not.
type ExplorationInput struct {
	ID string `path:"id" doc:"id of an exploration"`
}

func (in *ExplorationInput) valid() error {
	if !api.IsID(api.KindExploration, in.ID) {
		return api.Invalid("id", "%.100q is not the id of an exploration, such as xpl_jlpofkb4jzkxl33l", in.ID)
	}
	return nil
}

type getExplorationInput struct {
	ExplorationInput
	Wait bool `query:"wait" doc:"answer when the exploration has ended"`
}

type explorationEventsInput struct {
	ExplorationInput
	Since       int64  `query:"since" minimum:"0" doc:"number of the last event that the client has; 0 for all that there are"`
	Follow      bool   `query:"follow" doc:"go on with new events until the exploration has ended"`
	LastEventID string `header:"Last-Event-ID" doc:"instead of since, for a client that reconnects"`
}

func (h *explorations) routeExplorations(r *route.Router) {
	const tag, one = "explorations", "/v1/explorations/{id}"
	begin := route.WithStatus(route.Operation(http.MethodPost, "/v1/sandboxes/{id}/explorations", "explore-sandbox", tag, "Fork a sandbox into attempts, score them, and promote, merge or keep the best",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany, route.StatusNoStorage), http.StatusAccepted)
	begin.MaxBodyBytes = route.MaxExecBody
	begin.Responses = map[string]*huma.Response{
		"200": {Description: "The exploration has ended, and `wait` asked for that", Content: route.JSONContent(r, api.Exploration{})},
		"202": {Description: "The first attempts are there", Content: route.JSONContent(r, api.Exploration{})},
	}
	route.Register(r, begin, h.explore)
	route.Register(r, route.Operation(http.MethodGet, "/v1/explorations", "list-explorations", tag, "List explorations", route.StatusNotFound), h.list)
	route.Register(r, route.Operation(http.MethodGet, one, "get-exploration", tag, "Get an exploration with the table of its attempts", route.StatusNotFound), h.get)
	route.Register(r, route.Operation(http.MethodPost, one+"/cancel", "cancel-exploration", tag, "Stop an exploration", route.StatusNotFound, route.StatusConflict), h.cancel)
	route.Register(r, route.Operation(http.MethodDelete, one, "remove-exploration", tag, "Forget an exploration", route.StatusNotFound, route.StatusConflict), h.remove)
	content := route.EventContent(r, "Events `event` (ExplorationEvent), each with its number as its id, at last `end` or `error` (Problem).",
		route.EventData{httpwire.EventEvent: api.ExplorationEvent{}, httpwire.EventError: httpwire.Problem{}})
	route.RegisterStream(r, route.Operation(http.MethodGet, one+"/events", "list-exploration-events", tag, "List and follow the events of an exploration", route.StatusNotFound),
		map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{httpwire.EventType: content}}},
		func(in *explorationEventsInput) error { return cmp.Or(in.valid(), in.number()) }, h.events)
}

// number reads the number of the last event of a client that reconnects.
func (in *explorationEventsInput) number() error {
	if in.LastEventID == "" {
		return nil
	}
	since, err := strconv.ParseInt(in.LastEventID, 10, 64)
	if err != nil || since < 0 {
		return api.Invalid("Last-Event-ID", "%q is no number of an event", in.LastEventID)
	}
	in.Since = since
	return nil
}

func (h *explorations) explore(ctx context.Context, in *exploreInput) (*exploreOut, error) {
	if err := cmp.Or(route.ValidSandbox(in.ID), in.Body.Valid()); err != nil {
		return nil, err
	}
	x, err := h.svc.Explore(ctx, in.ID, in.Body)
	if err != nil {
		return nil, err
	}
	if !in.Wait {
		return &exploreOut{http.StatusAccepted, listed(x)}, nil
	}
	ctx, release := h.UntilDraining(ctx)
	defer release()
	if x, err = h.svc.GetExploration(ctx, x.ID, true); err != nil {
		return nil, err
	}
	return &exploreOut{http.StatusOK, listed(x)}, nil
}

// listed returns x without lists that JSON would show as null.
func listed(x *api.Exploration) *api.Exploration {
	x.Winners, x.Children, x.Rounds = route.List(x.Winners), route.List(x.Children), route.List(x.Rounds)
	if x.Merge != nil {
		m := *x.Merge // which other requests read
		m.Sides, m.Applied, m.Conflicts = route.List(m.Sides), route.List(m.Applied), route.List(m.Conflicts)
		x.Merge = &m
	}
	return x
}

func (h *explorations) list(ctx context.Context, in *explorationsInput) (*route.Out[httpwire.List[api.Exploration]], error) {
	if in.Sandbox != "" {
		if err := api.ValidRef(api.KindSandbox, "sandbox", in.Sandbox); err != nil {
			return nil, err
		}
	}
	all, err := h.svc.Explorations(ctx, api.ExplorationFilter{Sandbox: in.Sandbox, State: in.State})
	if err != nil {
		return nil, err
	}
	for i := range all {
		listed(&all[i])
	}
	return route.PageOf(all, in.PageInput, func(x *api.Exploration) route.PageKey { return route.KeyOf(x.CreatedAt, x.ID) }), nil
}

func (h *explorations) get(ctx context.Context, in *getExplorationInput) (*route.Out[*api.Exploration], error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	if in.Wait {
		var release context.CancelFunc
		ctx, release = h.UntilDraining(ctx)
		defer release()
	}
	return answerExploration(h.svc.GetExploration(ctx, in.ID, in.Wait))
}

func (h *explorations) cancel(ctx context.Context, in *ExplorationInput) (*route.Out[*api.Exploration], error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	return answerExploration(h.svc.CancelExploration(ctx, in.ID))
}

func answerExploration(x *api.Exploration, err error) (*route.Out[*api.Exploration], error) {
	if err != nil {
		return nil, err
	}
	return route.Answer(listed(x), nil)
}

func (h *explorations) remove(ctx context.Context, in *ExplorationInput) (*struct{}, error) {
	if err := in.valid(); err != nil {
		return nil, err
	}
	return nil, h.svc.RemoveExploration(ctx, in.ID)
}

func (h *explorations) events(w http.ResponseWriter, r *http.Request, in *explorationEventsInput) {
	events, ctx := h.Follow(w, r, in.Follow)
	defer events.Close()
	send := func(ev api.ExplorationEvent) error { return events.SendNumbered(ev.Seq, ev) }
	if err := h.svc.ExplorationEvents(ctx, in.ID, in.Since, in.Follow, events.Begin, send); err != nil {
		h.EndFollowing(ctx, events, r, err)
		return
	}
	_ = events.Send(httpwire.EventEnd, struct{}{}) // fails only if the client is gone
}
