package main

import (
	"context"
	"log/slog"
	"os"
	"syscall"

	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/daemon"
	"ramet.dev/ramet/internal/paths"
)

// serve is the daemon. Its log goes to standard error, which is the log file of
// a daemon in the background.
func serve(ctx context.Context, opts cli.ServeOptions) error {
	// Nothing the daemon makes is for other users; a file's owner may not widen
	// this by the shell it was started from.
	syscall.Umask(0o077)
	p, err := paths.Find()
	if err != nil {
		return err
	}
	cfg := daemon.Config{
		Paths:      p,
		Version:    buildVersion().Version,
		Logger:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
		NewService: newService,
	}
	if opts.Background {
		if cfg.Handover, err = daemon.Inherit(); err != nil {
			return err
		}
	}
	return daemon.Serve(ctx, cfg)
}
