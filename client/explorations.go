package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"ramet.dev/ramet/api"
)

// Explorations are forks of sandboxes that try something, of which the best is promoted, merged or
// kept.
type Explorations struct{ conn *connection }

// Begin begins an exploration of a sandbox, and returns when its first attempts are there. The
// exploration goes on by itself, also if the client ends: Wait returns its result.
func (e *Explorations) Begin(ctx context.Context, ref string, plan api.ExplorePlan) (*api.Exploration, error) {
	return on[*api.Exploration](ctx, e.conn, http.MethodPost, "sandboxes", ref, "/explorations", nil, plan)
}

// Run is Begin, and returns when the exploration has ended. If ctx ends before, the exploration
// goes on.
func (e *Explorations) Run(ctx context.Context, ref string, plan api.ExplorePlan) (*api.Exploration, error) {
	x, err := e.Begin(ctx, ref, plan)
	if err != nil {
		return nil, err
	}
	return e.Wait(ctx, x.ID)
}

// Get returns an exploration as it is now.
func (e *Explorations) Get(ctx context.Context, id string) (*api.Exploration, error) {
	return on[*api.Exploration](ctx, e.conn, http.MethodGet, "explorations", id, "", nil, nil)
}

// Wait returns an exploration when it has ended.
func (e *Explorations) Wait(ctx context.Context, id string) (*api.Exploration, error) {
	return on[*api.Exploration](ctx, e.conn, http.MethodGet, "explorations", id, "", url.Values{"wait": {"true"}}, nil)
}

// List returns the explorations that match, the oldest first, without outputs and comparisons.
func (e *Explorations) List(ctx context.Context, f api.ExplorationFilter) ([]api.Exploration, error) {
	query := url.Values{}
	for k, v := range map[string]string{"sandbox": f.Sandbox, "state": string(f.State)} {
		if v != "" {
			query.Set(k, v)
		}
	}
	return all[api.Exploration](ctx, e.conn, "/v1/explorations", query)
}

// Events calls each with the events of an exploration after since, 0 for all, and with follow also
// with those to come, until it has ended, ctx ends or each fails.
func (e *Explorations) Events(ctx context.Context, id string, since int64, follow bool, each func(api.ExplorationEvent) error) error {
	p, err := path("explorations", id, "/events")
	if err != nil {
		return err
	}
	q := url.Values{"since": {strconv.FormatInt(since, 10)}, "follow": {strconv.FormatBool(follow)}}
	return eachEvent(ctx, e.conn, p, q, "exploration event", each)
}

// Cancel stops an exploration, and returns it when its attempts are gone.
func (e *Explorations) Cancel(ctx context.Context, id string) (*api.Exploration, error) {
	return on[*api.Exploration](ctx, e.conn, http.MethodPost, "explorations", id, "/cancel", nil, nil)
}

// Remove forgets an exploration. One that has not ended is canceled before.
func (e *Explorations) Remove(ctx context.Context, id string) error {
	_, err := on[struct{}](ctx, e.conn, http.MethodDelete, "explorations", id, "", nil, nil)
	return err
}
