package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"syscall"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/daemon"
	"ramet.dev/ramet/internal/engine/idlepoll"
	"ramet.dev/ramet/internal/observe/metrics"
	"ramet.dev/ramet/internal/observe/tracing"
	"ramet.dev/ramet/internal/storage/paths"
)

// serve runs the daemon. Its log goes to standard error, or to a file that is rotated when it is
// full if the daemon runs in the background.
func serve(ctx context.Context, opts cli.ServeOptions) error {
	// No file of the daemon is for other users, whatever the umask of the shell that
	// started it.
	syscall.Umask(0o077)
	p, err := paths.Find()
	if err != nil {
		return err
	}
	version := buildVersion().Version
	var handover *daemon.Handover
	var stderr io.Writer = os.Stderr
	if opts.Background {
		if handover, err = daemon.Inherit(p); err != nil {
			return err
		}
		stderr = daemon.NewLog(p)
	}
	log, err := newLogger(stderr, os.Getenv(logVariable))
	if err != nil {
		return err
	}
	traces, err := tracing.Open("ramet-daemon", version, os.Getenv, func(err error) { log.Warn("traces", "error", err) })
	if err != nil {
		return err
	}
	defer closeTraces(traces)
	poller, err := idlepoll.Open(pollVariable, os.Getenv(pollVariable), log)
	if err != nil {
		return err
	}
	defer poller.Close()
	svc := &composition{metrics: metrics.New(version), packageCache: opts.PackageCache, networkMax: opts.NetworkMax, trust: opts.Trust}
	cfg := daemon.Config{
		Paths:      p,
		Version:    version,
		Logger:     log,
		NewService: svc.open,
		Around:     func(next http.Handler) http.Handler { return poller.Handler(traces.Handler(next)) },
		Metrics:    svc.metrics.Handler(),
		Handover:   handover,
		Listen:     daemon.Listen{Address: opts.Listen, CertFile: opts.CertFile, KeyFile: opts.KeyFile, PortDomain: opts.PortDomain},
	}
	if opts.Listen == "" && opts.E2BDomain != "" {
		cfg.Listen.CertFile, cfg.Listen.KeyFile = "", "" // they are for clients of E2B alone
	}
	if cfg.Beside, err = besideE2B(p, opts, log); err != nil {
		return err
	}
	return daemon.Serve(ctx, cfg)
}

// pollVariable is the variable that makes idle processors poll while a request is new.
const pollVariable = "RAMET_IDLE_POLL"

// logVariable is the variable with the level and the format of the log.
const logVariable = "RAMET_LOG"

// newLogger returns a log with the given setting: a level, "json", or both separated by a comma.
func newLogger(w io.Writer, setting string) (*slog.Logger, error) {
	var opts slog.HandlerOptions
	json := false
	for word := range strings.SplitSeq(setting, ",") {
		var level slog.Level
		switch err := level.UnmarshalText([]byte(word)); {
		case word == "" || word == "text":
		case word == "json":
			json = true
		case err != nil:
			return nil, api.Invalid(logVariable, "%q is not debug, info, warn or error, and not text or json", word)
		default:
			opts.Level = level
		}
	}
	if json {
		return slog.New(slog.NewJSONHandler(w, &opts)), nil
	}
	return slog.New(slog.NewTextHandler(w, &opts)), nil
}
