package rest_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// eventsUntil answers with two events and then, if asked to follow, waits until the
// client goes away.
func eventsUntil(got *api.EventRequest) *apitest.Service {
	return &apitest.Service{EventsFunc: func(ctx context.Context, req api.EventRequest, began func(), each func(api.Event) error) error {
		*got = req
		if req.Sandbox == "gone" {
			return api.NotFound("sandbox", req.Sandbox)
		}
		began()
		for seq := int64(7); seq < 9; seq++ {
			if err := each(api.Event{Seq: seq, Kind: api.EventCreated, SandboxID: "sbx_a", Time: time.Unix(1, 0).UTC()}); err != nil {
				return err
			}
		}
		if req.Follow {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}}
}

func TestEvents(t *testing.T) {
	var req api.EventRequest
	c := testClient(t, apitest.Serve(t, eventsUntil(&req)))
	got := ask(t, c, "GET", "/v1/events?kind=created&kind=failed&since=5", "")
	want := "id: 7\nevent: event\ndata: {\"seq\":7,\"time\":\"1970-01-01T00:00:01Z\",\"kind\":\"created\",\"sandbox_id\":\"sbx_a\"}\n\n"
	if got.status != 200 || !strings.HasPrefix(got.body, want) || !strings.HasSuffix(got.body, "event: end\ndata: {}\n\n") {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if len(req.Kinds) != 2 || req.Kinds[1] != api.EventFailed || req.Since != 5 || req.Follow || req.Sandbox != "" {
		t.Errorf("the service was asked for %+v", req)
	}
	got = ask(t, c, "GET", "/v1/sandboxes/a/events", "", "Last-Event-ID", "41")
	if got.status != 200 || req.Sandbox != "a" || req.Since != 41 {
		t.Errorf("status %d, the service was asked for %+v", got.status, req)
	}
	for path, header := range map[string]string{
		"/v1/events?kind=nothing": "", "/v1/events?since=-2": "", "/v1/events?since=x": "", "/v1/events": "no number", "/v1/sandboxes/a/events?kind=no": "",
	} {
		var headers []string
		if header != "" {
			headers = []string{"Last-Event-ID", header}
		}
		if got := ask(t, c, "GET", path, "", headers...); got.status != 400 && got.status != 422 {
			t.Errorf("%s %q: status %d %s", path, header, got.status, got.body)
		}
	}
	if got := ask(t, c, "GET", "/v1/sandboxes/gone/events?follow=true", ""); got.status != 404 || got.problem(t).Code != api.CodeNotFound {
		t.Errorf("no sandbox: status %d %s", got.status, got.body)
	}
}

func TestFollowedEventsEndWithTheClient(t *testing.T) {
	var req api.EventRequest
	c := testClient(t, apitest.Serve(t, eventsUntil(&req)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://ramet/v1/events?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := httpwire.NewEventReader(resp.Body)
	for range 2 {
		if ev, err := in.Next(); err != nil || ev.Name != httpwire.EventEvent {
			t.Fatalf("%s, %v", ev.Name, err)
		}
	}
	cancel()
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the stream ended as if there were no more events")
	}
}
