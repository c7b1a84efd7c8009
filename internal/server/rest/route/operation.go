package route

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service/access"
)

// The statuses of failure that an operation may have besides those of all operations.
const (
	StatusTooMany     = http.StatusTooManyRequests
	StatusNoStorage   = http.StatusInsufficientStorage
	StatusNotFound    = http.StatusNotFound
	StatusConflict    = http.StatusConflict
	StatusTooLarge    = http.StatusRequestEntityTooLarge
	StatusUnsupported = http.StatusUnsupportedMediaType
)

// Out is an answer with a JSON body.
type Out[T any] struct{ Body T }

// Answer returns v as the body of an answer, if err is nil.
func Answer[T any](v T, err error) (*Out[T], error) { return &Out[T]{Body: v}, err }

// AnswerList returns items as the body of an answer that is one page, if err is nil.
func AnswerList[T any](items []T, err error) (*Out[httpwire.List[T]], error) {
	return Answer(httpwire.List[T]{Items: List(items)}, err)
}

// IDInput is the input of an operation on a sandbox or snapshot. It is exported
// because the framework passes over embedded types that are not.
type IDInput struct {
	ID string `path:"id" doc:"id or name"`
}

// ReachInput is the input of an operation that operators may extend to all tenants.
type ReachInput struct {
	AllTenants bool `query:"all_tenants" doc:"include all tenants, whose sandboxes and snapshots are named by their ids; only for the owner of the daemon, and for unbound tokens of the default tenant with scope admin"`
}

// Reach returns a context in which the caller sees all tenants, if the request asks for that.
func (in *ReachInput) Reach(ctx context.Context) (context.Context, error) {
	if !in.AllTenants {
		return ctx, nil
	}
	return access.WithAllTenants(ctx)
}

// ThingInput is the input of reading or removing a sandbox or snapshot.
type ThingInput struct {
	IDInput
	ReachInput
}

// Operation describes a route. Every operation may fail with the common statuses; errors has
// its own.
func Operation(method, path, id, tag, summary string, errors ...int) huma.Operation {
	var params []*huma.Param
	switch method {
	case http.MethodPost, http.MethodPatch, http.MethodDelete:
		params = []*huma.Param{keyParam()}
		errors = append(errors, StatusConflict, http.StatusUnprocessableEntity)
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

// WithStatus sets the status of success.
func WithStatus(op huma.Operation, status int) huma.Operation {
	op.DefaultStatus = status
	return op
}

// Register adds a route whose handler returns errors of the vocabulary.
func Register[I, O any](r *Router, op huma.Operation, handler func(context.Context, *I) (*O, error)) {
	op.Middlewares = append(op.Middlewares, r.refuseNulls)
	huma.Register(r.huma, op, func(ctx context.Context, in *I) (*O, error) {
		o, err := handler(ctx, in)
		if err != nil {
			return nil, r.Problem(ctx, err)
		}
		return o, nil
	})
}

// RegisterStream adds a route whose handler writes the answer itself, in one of
// the documented forms.
func RegisterStream[I any](r *Router, op huma.Operation, responses map[string]*huma.Response, check func(*I) error, serve func(http.ResponseWriter, *http.Request, *I)) {
	op.Responses = responses
	Register(r, op, func(_ context.Context, in *I) (*huma.StreamResponse, error) {
		if err := check(in); err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			req, w := humago.Unwrap(ctx)
			serve(w, req, in)
		}}, nil
	})
}

// Present returns *p, or the zero value for an absent body.
func Present[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// List returns s, or an empty list that JSON does not show as null.
func List[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// MaxIdempotencyKey bounds an idempotency key, in bytes.
const MaxIdempotencyKey = 255

// keyParam documents the header with an idempotency key.
func keyParam() *huma.Param {
	longest := MaxIdempotencyKey
	return &huma.Param{Name: httpwire.IdempotencyHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString, MaxLength: &longest},
		Description: "chosen by the client: the request is done once, and for a day the same request with the same key and token gets the same answer"}
}
