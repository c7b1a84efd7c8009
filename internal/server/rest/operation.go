package rest

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"ramet.dev/ramet/internal/service/access"
)

// The statuses that routes add to those of every operation.
const (
	statusTooMany     = http.StatusTooManyRequests
	statusNoStorage   = http.StatusInsufficientStorage
	statusNotFound    = http.StatusNotFound
	statusConflict    = http.StatusConflict
	statusTooLarge    = http.StatusRequestEntityTooLarge
	statusUnsupported = http.StatusUnsupportedMediaType
)

// out is an answer with a JSON body.
type out[T any] struct{ Body T }

// IDInput is the input of what concerns one sandbox or snapshot. It is exported
// because the framework passes over embedded types that are not.
type IDInput struct {
	ID string `path:"id" doc:"id or name"`
}

// ReachInput is the input of what an operator may ask about the things of all tenants.
type ReachInput struct {
	AllTenants bool `query:"all_tenants" doc:"of all tenants, whose sandboxes and snapshots are named by their ids; only for the owner of the daemon, and tokens of the default tenant with scope admin that are bound to nothing"`
}

// reach returns a context in which the caller sees what it asked to see.
func (in *ReachInput) reach(ctx context.Context) (context.Context, error) {
	if !in.AllTenants {
		return ctx, nil
	}
	return access.WithAllTenants(ctx)
}

// ThingInput is the input of looking at or removing one sandbox or snapshot.
type ThingInput struct {
	IDInput
	ReachInput
}

// operation describes a route. Every one may fail with these statuses, whatever
// it does; specific ones are added.
func operation(method, path, id, tag, summary string, errors ...int) huma.Operation {
	var params []*huma.Param
	switch method {
	case http.MethodPost, http.MethodPatch, http.MethodDelete:
		params = []*huma.Param{keyParam()}
		errors = append(errors, statusConflict, http.StatusUnprocessableEntity)
	}
	slices.Sort(errors)
	errors = slices.Compact(errors)
	return huma.Operation{
		Parameters: params,
		Method:     method, Path: path, OperationID: id, Tags: []string{tag}, Summary: summary,
		Errors: append([]int{
			http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		}, errors...),
		// The deadline of a body is timedBody's; the framework's would stay set
		// while the handler runs.
		BodyReadTimeout: -1,
		Security:        security(method, path),
		MaxBodyBytes:    maxBody,
	}
}

// withStatus sets the status of success.
func withStatus(op huma.Operation, status int) huma.Operation {
	op.DefaultStatus = status
	return op
}

// register adds a route whose handler returns errors of the vocabulary.
func register[I, O any](a *API, op huma.Operation, handler func(context.Context, *I) (*O, error)) {
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		o, err := handler(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return o, nil
	})
}

// registerStream adds a route whose handler writes the answer itself, in one of
// the documented forms.
func registerStream[I any](a *API, op huma.Operation, responses map[string]*huma.Response, check func(*I) error, serve func(http.ResponseWriter, *http.Request, *I)) {
	op.Responses = responses
	register(a, op, func(_ context.Context, in *I) (*huma.StreamResponse, error) {
		if err := check(in); err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			serve(w, r, in)
		}}, nil
	})
}

// present returns *p, or the zero value for an absent body.
func present[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// list returns s, or an empty list that JSON does not show as null.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
