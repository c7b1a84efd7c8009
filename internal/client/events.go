package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/sandbox"
)

// Events calls each with events until there are no more; if the request asks to
// follow, until ctx ends, the one sandbox is destroyed or each fails.
func (c *Client) Events(ctx context.Context, req sandbox.EventRequest, each func(sandbox.Event) error) error {
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
	return c.events(ctx, http.MethodGet, p, q, nil, func(ev httpwire.Event) (done bool, err error) {
		switch ev.Name {
		case httpwire.EventEnd:
			return true, nil
		case httpwire.EventEvent:
			var e sandbox.Event
			if err := json.Unmarshal(ev.Data, &e); err != nil {
				return false, fmt.Errorf("decode event: %w", err)
			}
			return false, each(e)
		}
		return false, nil
	})
}
