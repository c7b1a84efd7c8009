package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/paths"
)

// newService builds what the daemon serves: the composition root.
func newService(context.Context, paths.Paths, *slog.Logger) (httpapi.Service, io.Closer, error) {
	return nil, nil, errors.New("engine not linked")
}
