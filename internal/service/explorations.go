package service

import (
	"context"

	"ramet.dev/ramet/api"
)

// Explorations are forks that try something, of which the best is promoted, merged or kept.
type Explorations interface {
	// Explore begins an exploration, and returns when its first attempts are there. It is an
	// error, and there is no exploration, if they cannot be made. The exploration goes on when
	// ctx ends.
	Explore(ctx context.Context, ref string, plan api.ExplorePlan) (*api.Exploration, error)
	// Explorations returns the explorations that match, in any order, without outputs and
	// comparisons.
	Explorations(ctx context.Context, filter api.ExplorationFilter) ([]api.Exploration, error)
	// GetExploration returns an exploration, with wait when it has ended.
	GetExploration(ctx context.Context, id string, wait bool) (*api.Exploration, error)
	// ExplorationEvents calls each with the events of an exploration after since, and with follow
	// also with those to come, until the exploration has ended, ctx ends or each fails. It calls
	// began before the first one.
	ExplorationEvents(ctx context.Context, id string, since int64, follow bool, began func(), each func(api.ExplorationEvent) error) error
	// CancelExploration stops an exploration, and returns it when its attempts are gone.
	CancelExploration(ctx context.Context, id string) (*api.Exploration, error)
	// RemoveExploration forgets an exploration. One that has not ended is canceled before.
	RemoveExploration(ctx context.Context, id string) error
}
