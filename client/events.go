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
	return c.conn.events(ctx, http.MethodGet, p, q, nil, func(ev httpwire.Event) (done bool, err error) {
		switch ev.Name {
		case httpwire.EventEnd:
			return true, nil
		case httpwire.EventEvent:
			var e api.Event
			if err := json.Unmarshal(ev.Data, &e); err != nil {
				return false, fmt.Errorf("decode event: %w", err)
			}
			return false, each(e)
		}
		return false, nil
	})
}
