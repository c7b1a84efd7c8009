package rest

import (
	"context"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

type tokenInput struct{ Body api.TokenRequest }

type tokensInput struct {
	PageInput
	Tenant string `query:"tenant" doc:"only tokens of this tenant"`
}

// TokenIDInput is the input of what concerns one token.
type TokenIDInput struct {
	ID string `path:"id" doc:"id of the token"`
}

func (in *TokenIDInput) valid() error {
	if !api.IsID(api.KindToken, in.ID) {
		return api.Invalid("id", "%q is not the id of a token", in.ID)
	}
	return nil
}

type rotateInput struct {
	TokenIDInput
	Body *api.RotateRequest
}

func (a *API) routeTokens() {
	const tag, one = "tokens", "/v1/tokens/{id}"
	register(a, withStatus(operation(http.MethodPost, "/v1/tokens", "create-token", tag, "Make a token; its secret is told only here",
		statusNotFound, statusTooLarge, statusUnsupported, statusTooMany), http.StatusCreated),
		func(ctx context.Context, in *tokenInput) (*out[*api.IssuedToken], error) {
			t, err := a.svc.CreateToken(ctx, in.Body)
			return &out[*api.IssuedToken]{t}, err
		})
	register(a, operation(http.MethodGet, "/v1/tokens", "list-tokens", tag, "List tokens"), a.listTokens)
	register(a, operation(http.MethodPost, one+"/rotate", "rotate-token", tag, "Give a token another secret, which is told only here",
		statusNotFound, statusTooLarge, statusUnsupported),
		func(ctx context.Context, in *rotateInput) (*out[*api.IssuedToken], error) {
			if err := in.valid(); err != nil {
				return nil, err
			}
			t, err := a.svc.RotateToken(ctx, in.ID, present(in.Body))
			return &out[*api.IssuedToken]{t}, err
		})
	register(a, operation(http.MethodDelete, one, "remove-token", tag, "End a token, and those that it made", statusNotFound),
		func(ctx context.Context, in *TokenIDInput) (*struct{}, error) {
			if err := in.valid(); err != nil {
				return nil, err
			}
			return nil, a.svc.RemoveToken(ctx, in.ID)
		})
}

func (a *API) listTokens(ctx context.Context, in *tokensInput) (*out[httpwire.List[api.Token]], error) {
	all, err := a.svc.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	kept := all[:0]
	for _, t := range all {
		if !differs(in.Tenant, t.Tenant) {
			kept = append(kept, t)
		}
	}
	return pageOf(kept, in.PageInput, func(t *api.Token) pageKey { return keyOf(t.CreatedAt, t.ID) }), nil
}
