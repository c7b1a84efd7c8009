package rest

import (
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Document returns what /openapi.json is rendered from.
func (a *API) Document() *huma.OpenAPI { return a.router.OpenAPI() }

// SetReadTimeout sets how long a client may take to read a piece of an archive.
func (a *API) SetReadTimeout(d time.Duration) { a.streams.ReadTimeout = d }
