package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Events calls each with the events that the request selects. Without Follow it ends when
// there are no more, else when ctx ends, the requested sandbox is destroyed or each fails.
func (c *Client) Events(ctx context.Context, req api.EventRequest, each func(api.Event) error) error {
	p := "/v1/events"
	if req.Sandbox != "" {
		var err error
		if p, err = path("sandboxes", req.Sandbox, "/events"); err != nil {
			return err
		}
	}
	q := url.Values{"since": {strconv.FormatInt(req.Since, 10)}, "follow": {strconv.FormatBool(req.Follow)}}
	for _, k := range req.Kinds {
		q.Add("kind", string(k))
	}
	return eachEvent(ctx, c.conn, p, q, "event", each)
}

// eachEvent calls each with what the events of a stream have, until the stream ends or each fails. what
// names one in errors.
func eachEvent[T any](ctx context.Context, c *connection, path string, query url.Values, what string, each func(T) error) error {
	return c.events(ctx, http.MethodGet, path, query, nil, func(ev httpwire.Event) (done bool, err error) {
		switch ev.Name {
		case httpwire.EventEnd:
			return true, nil
		case httpwire.EventEvent:
			var v T
			if err := json.Unmarshal(ev.Data, &v); err != nil {
				return false, fmt.Errorf("decode %s: %w", what, err)
			}
			return false, each(v)
		}
		return false, nil
	})
}
