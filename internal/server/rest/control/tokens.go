package control

import (
	"context"
	"net/http"

	"ramet.dev/ramet/internal/server/rest/route"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// tokens serves access tokens.
type tokens struct{ svc service.Tokens }

type tokenInput struct{ Body api.TokenRequest }

type tokensInput struct {
	route.PageInput
	Tenant string `query:"tenant" doc:"only tokens of this tenant"`
}

// TokenIDInput is the input of operations on a token.
type TokenIDInput struct {
	ID string `path:"id" doc:"id of the token"`
}

func (in *TokenIDInput) valid() error {
	if !api.IsID(api.KindToken, in.ID) {
		return api.Invalid("id", "%q is not the id of a token, which begins with tok_", in.ID)
	}
	return nil
}

type rotateInput struct {
	TokenIDInput
	Body *api.RotateRequest
}

func (h *tokens) routeTokens(r *route.Router) {
	const tag, one = "tokens", "/v1/tokens/{id}"
	route.Register(r, route.WithStatus(route.Operation(http.MethodPost, "/v1/tokens", "create-token", tag, "Create a token; only this answer has its secret",
		route.StatusNotFound, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany), http.StatusCreated),
		func(ctx context.Context, in *tokenInput) (*route.Out[*api.IssuedToken], error) {
			t, err := h.svc.CreateToken(ctx, in.Body)
			return route.Answer(t, err)
		})
	route.Register(r, route.Operation(http.MethodGet, "/v1/tokens", "list-tokens", tag, "List tokens"), h.listTokens)
	route.Register(r, route.Operation(http.MethodPost, one+"/rotate", "rotate-token", tag, "Replace the secret of a token; only this answer has the new secret",
		route.StatusNotFound, route.StatusTooLarge, route.StatusUnsupported),
		func(ctx context.Context, in *rotateInput) (*route.Out[*api.IssuedToken], error) {
			if err := in.valid(); err != nil {
				return nil, err
			}
			t, err := h.svc.RotateToken(ctx, in.ID, route.Present(in.Body))
			return route.Answer(t, err)
		})
	route.Register(r, route.Operation(http.MethodDelete, one, "remove-token", tag, "Remove a token, and the tokens that were created with it", route.StatusNotFound),
		func(ctx context.Context, in *TokenIDInput) (*struct{}, error) {
			if err := in.valid(); err != nil {
				return nil, err
			}
			return nil, h.svc.RemoveToken(ctx, in.ID)
		})
}

func (h *tokens) listTokens(ctx context.Context, in *tokensInput) (*route.Out[httpwire.List[api.Token]], error) {
	all, err := h.svc.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	kept := all[:0]
	for _, t := range all {
		if !differs(in.Tenant, t.Tenant) {
			kept = append(kept, t)
		}
	}
	return route.PageOf(kept, in.PageInput, func(t *api.Token) route.PageKey { return route.KeyOf(t.CreatedAt, t.ID) }), nil
}
