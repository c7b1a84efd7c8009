package httpapi

import "github.com/danielgtaylor/huma/v2"

// Document returns what /openapi.json is rendered from.
func (a *API) Document() *huma.OpenAPI { return a.huma.OpenAPI() }
