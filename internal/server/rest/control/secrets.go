package control

import (
	"context"
	"net/http"

	"ramet.dev/ramet/internal/server/rest/route"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// secrets serves the secrets of tenants. No answer has a value.
type secrets struct{ svc service.Secrets }

// SecretInput is the input of operations on a secret.
type SecretInput struct {
	Name string `path:"name" doc:"name of the secret"`
}

type setSecretInput struct {
	SecretInput
	Body api.SecretRequest
}

func (h *secrets) routeSecrets(r *route.Router) {
	const tag, one = "secrets", "/v1/secrets/{name}"
	route.Register(r, route.Operation(http.MethodGet, "/v1/secrets", "list-secrets", tag, "List secrets, without their values"),
		func(ctx context.Context, _ *struct{}) (*route.Out[httpwire.List[api.Secret]], error) {
			all, err := h.svc.Secrets(ctx)
			return route.AnswerList(all, err)
		})
	route.Register(r, route.Operation(http.MethodPut, one, "set-secret", tag, "Make a secret or replace it", route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany),
		func(ctx context.Context, in *setSecretInput) (*route.Out[*api.Secret], error) {
			set, err := h.svc.SetSecret(ctx, in.Name, in.Body)
			return route.Answer(set, err)
		})
	route.Register(r, route.Operation(http.MethodDelete, one, "remove-secret", tag, "Remove a secret", route.StatusNotFound),
		func(ctx context.Context, in *SecretInput) (*struct{}, error) {
			return nil, h.svc.RemoveSecret(ctx, in.Name)
		})
}
