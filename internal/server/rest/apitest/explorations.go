package apitest

import (
	"context"

	"ramet.dev/ramet/api"
)

// ExploreFuncs are the functions of a Service that are about explorations.
type ExploreFuncs struct {
	ExploreFunc           func(context.Context, string, api.ExplorePlan) (*api.Exploration, error)
	ExplorationsFunc      func(context.Context, api.ExplorationFilter) ([]api.Exploration, error)
	GetExplorationFunc    func(context.Context, string, bool) (*api.Exploration, error)
	ExplorationEventsFunc func(context.Context, string, int64, bool, func(), func(api.ExplorationEvent) error) error
	CancelExplorationFunc func(context.Context, string) (*api.Exploration, error)
	RemoveExplorationFunc func(context.Context, string) error
}

// Explore implements service.Explorations.
func (f *ExploreFuncs) Explore(ctx context.Context, ref string, plan api.ExplorePlan) (*api.Exploration, error) {
	return call(f.ExploreFunc != nil, func() (*api.Exploration, error) { return f.ExploreFunc(ctx, ref, plan) })
}

// Explorations implements service.Explorations.
func (f *ExploreFuncs) Explorations(ctx context.Context, filter api.ExplorationFilter) ([]api.Exploration, error) {
	return call(f.ExplorationsFunc != nil, func() ([]api.Exploration, error) { return f.ExplorationsFunc(ctx, filter) })
}

// GetExploration implements service.Explorations.
func (f *ExploreFuncs) GetExploration(ctx context.Context, id string, wait bool) (*api.Exploration, error) {
	return call(f.GetExplorationFunc != nil, func() (*api.Exploration, error) { return f.GetExplorationFunc(ctx, id, wait) })
}

// ExplorationEvents implements service.Explorations.
func (f *ExploreFuncs) ExplorationEvents(ctx context.Context, id string, since int64, follow bool, began func(), each func(api.ExplorationEvent) error) error {
	if f.ExplorationEventsFunc == nil {
		return errUnset
	}
	return f.ExplorationEventsFunc(ctx, id, since, follow, began, each)
}

// CancelExploration implements service.Explorations.
func (f *ExploreFuncs) CancelExploration(ctx context.Context, id string) (*api.Exploration, error) {
	return call(f.CancelExplorationFunc != nil, func() (*api.Exploration, error) { return f.CancelExplorationFunc(ctx, id) })
}

// RemoveExploration implements service.Explorations.
func (f *ExploreFuncs) RemoveExploration(ctx context.Context, id string) error {
	if f.RemoveExplorationFunc == nil {
		return errUnset
	}
	return f.RemoveExplorationFunc(ctx, id)
}
