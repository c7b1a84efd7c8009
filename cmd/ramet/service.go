package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/manager"
	"ramet.dev/ramet/internal/metrics"
	"ramet.dev/ramet/internal/paths"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/sentrybin"
	"ramet.dev/ramet/internal/tracing"
)

// poolVariable sets how many blank sentries the daemon keeps ready.
const poolVariable = "RAMET_POOL"

// service builds what the daemon serves: the composition root.
type service struct {
	metrics *metrics.Metrics
	// packageCache is how many bytes of cached packages are kept.
	packageCache int64
}

// open implements daemon.NewService.
func (s *service) open(ctx context.Context, p paths.Paths, log *slog.Logger) (httpapi.Service, io.Closer, error) {
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return nil, nil, fmt.Errorf("read the size of memory: %w", err)
	}
	pool := manager.DefaultPoolSize(host.Totalram * uint64(host.Unit))
	if v := os.Getenv(poolVariable); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > manager.MaxPoolSize {
			return nil, nil, sandbox.Invalid(poolVariable, "%q is not a number from 0 to %d", v, manager.MaxPoolSize)
		}
		pool = manager.FixedPoolSize(n)
	}
	program, err := sentrybin.Open()
	if err != nil {
		return nil, nil, err
	}
	command, err := sentrybin.OpenCommand()
	if err != nil {
		program.Close()
		return nil, nil, err
	}
	m, err := manager.Open(ctx, manager.Config{
		Paths: p, Executable: program.Path(), Engine: program.Engine, PoolSize: pool, Command: command, Log: log, Observer: observers{s.metrics, tracing.Observer{}}, PackageCache: s.packageCache,
	})
	if err != nil {
		program.Close()
		command.Close()
		return nil, nil, err
	}
	s.metrics.Watch(m.Usage)
	return m, closers{m, program, command}, nil
}

// closers closes one after the other.
type closers []io.Closer

// Close implements io.Closer.
func (cs closers) Close() error {
	var errs []error
	for _, c := range cs {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// observers are told one after the other, of ends in the other order.
type observers []manager.Observer

// Begin implements manager.Observer.
func (os observers) Begin(ctx context.Context, operation string) (context.Context, func(error)) {
	ends := make([]func(error), len(os))
	for i, o := range os {
		ctx, ends[i] = o.Begin(ctx, operation)
	}
	return ctx, func(err error) {
		for _, end := range slices.Backward(ends) {
			end(err)
		}
	}
}

// Figure implements manager.Observer.
func (os observers) Figure(name string, value float64) {
	for _, o := range os {
		o.Figure(name, value)
	}
}
