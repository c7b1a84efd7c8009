package service

import (
	"context"

	"ramet.dev/ramet/api"
)

// Events is the event log.
type Events interface {
	// Events calls each with events until there are no more. If the request asks to
	// follow, it goes on until ctx ends or the requested sandbox is destroyed. It calls
	// began before the first each: no event after that moment is missed.
	Events(ctx context.Context, req api.EventRequest, began func(), each func(api.Event) error) error
}
