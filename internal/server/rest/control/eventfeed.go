package control

import (
	"errors"
	"net/http"
	"strconv"

	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// eventLog serves events.
type eventLog struct {
	*stream.Streams
	svc service.Events
}

// EventsInput is the query of events.
type EventsInput struct {
	Kind        []api.EventKind `query:"kind,explode" doc:"only events of this kind; may be repeated"`
	Since       int64           `query:"since" minimum:"-1" doc:"sequence number of the last event that the client has; 0 for all that are kept, -1 for those from now on"`
	Follow      bool            `query:"follow" doc:"go on with new events until the client goes away or the sandbox is destroyed"`
	LastEventID string          `header:"Last-Event-ID" doc:"instead of since, for a client that reconnects"`
}

type sandboxEventsInput struct {
	route.IDInput
	EventsInput
}

func (h *eventLog) routeEvents(r *route.Router) {
	const tag = "events"
	responses := map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{
		httpwire.EventType: route.EventContent(r, "Events `event` (Event), each with its sequence number as its id, at last `end` or `error` (Problem).",
			route.EventData{httpwire.EventEvent: api.Event{}, httpwire.EventError: httpwire.Problem{}}),
	}}}
	route.RegisterStream(r, route.Operation(http.MethodGet, "/v1/events", "list-events", tag, "List and follow the events of sandboxes"), responses,
		func(in *EventsInput) error { return in.check() },
		func(w http.ResponseWriter, r *http.Request, in *EventsInput) { h.events(w, r, in.request("")) })
	route.RegisterStream(r, route.Operation(http.MethodGet, "/v1/sandboxes/{id}/events", "list-sandbox-events", tag, "List and follow the events of a sandbox", route.StatusNotFound), responses,
		func(in *sandboxEventsInput) error { return errors.Join(route.ValidSandbox(in.ID), in.check()) },
		func(w http.ResponseWriter, r *http.Request, in *sandboxEventsInput) {
			h.events(w, r, in.request(in.ID))
		})
}

func (in *EventsInput) check() error {
	for _, k := range in.Kind {
		if err := k.Valid("kind"); err != nil {
			return err
		}
	}
	if in.LastEventID != "" {
		since, err := strconv.ParseInt(in.LastEventID, 10, 64)
		if err != nil || since < 0 {
			return api.Invalid("Last-Event-ID", "%q is no sequence number", in.LastEventID)
		}
		in.Since = since
	}
	return nil
}

func (in *EventsInput) request(ref string) api.EventRequest {
	return api.EventRequest{Sandbox: ref, Kinds: in.Kind, Since: in.Since, Follow: in.Follow}
}

func (h *eventLog) events(w http.ResponseWriter, r *http.Request, req api.EventRequest) {
	events, ctx := h.Follow(w, r, req.Follow)
	defer events.Close()
	if err := h.svc.Events(ctx, req, events.Begin, events.SendEvent); err != nil {
		h.EndFollowing(ctx, events, r, err)
		return
	}
	_ = events.Send(httpwire.EventEnd, struct{}{}) // fails only if the client is gone
}
