package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/sentrybin"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/internal/node"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/observe/metrics"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/observe/tracing"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/storage/paths"
)

// poolVariable sets how many blank sentries the daemon keeps ready.
const poolVariable = "RAMET_POOL"

// composition builds the node that the daemon serves.
type composition struct {
	metrics *metrics.Metrics
	// packageCache is how many bytes of cached packages are kept.
	packageCache int64
	// networkMax bounds what sandboxes may reach; nil if nothing does.
	networkMax *api.NetworkRequest
	// trust are the keys one of which must have signed a snapshot that arrives.
	trust []string
}

// open implements daemon.NewService.
func (s *composition) open(ctx context.Context, p paths.Paths, log *slog.Logger) (service.Service, io.Closer, error) {
	memory, err := procfs.ReadMemory()
	if err != nil {
		return nil, nil, err
	}
	pool := node.DefaultPoolSize(uint64(memory.Total))
	if v := os.Getenv(poolVariable); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > node.MaxPoolSize {
			return nil, nil, api.Invalid(poolVariable, "%q is not a number from 0 to %d", v, node.MaxPoolSize)
		}
		pool = node.FixedPoolSize(n)
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
	gateway, err := sentrybin.OpenGateway()
	if err != nil {
		program.Close()
		command.Close()
		return nil, nil, err
	}
	m, err := machine.Open(ctx, node.Config{
		Gateway: gateway.Path(), GatewayBuild: gateway.Build, NetworkMax: s.networkMax,
		Paths: p, Executable: program.Path(), Engine: program.Engine, PoolSize: pool, Command: command, Log: log, Observer: observers{s.metrics, tracing.Observer{}}, PackageCache: s.packageCache, KeepEngines: true, Trust: s.trust,
	})
	if err != nil {
		program.Close()
		command.Close()
		gateway.Close()
		return nil, nil, err
	}
	s.metrics.Watch(m.Usage)
	return m, closers{m, program, command, gateway}, nil
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
type observers []meter.Observer

// Begin implements meter.Observer.
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

// Metric implements meter.Observer.
func (os observers) Metric(name string, value float64) {
	for _, o := range os {
		o.Metric(name, value)
	}
}
