package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"ramet.dev/ramet/internal/bench/outside"
	"ramet.dev/ramet/internal/bench/stock"
)

const (
	// runscSuffix ends the names of the rows of runsc.
	runscSuffix = "-runsc"
	// netSource is the id of the container with a network.
	netSource = "network"
)

// cannotConnect returns the reason why runsc is left out of the cases of the network, or an empty
// text.
func cannotConnect(path string) (string, error) {
	if reason, err := cannotCompare(path); reason != "" || err != nil {
		return reason, err
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return "the command ip, of iproute2, is needed: " + err.Error(), nil
	}
	return "", nil
}

// netRunsc starts a container of stock runsc with its netstack in a network namespace, and a
// server that it reaches. The caller calls stop also after an error.
func (b netBench) netRunsc(ctx context.Context) (side netSide, stop func(context.Context) error, err error) {
	var closers []func(context.Context) error
	stop = func(ctx context.Context) error {
		var errs []error
		for i := len(closers) - 1; i >= 0; i-- {
			errs = append(errs, closers[i](ctx))
		}
		return errors.Join(errs...)
	}
	link, err := stock.NewLink(ctx)
	closers = append(closers, link.Close)
	if err != nil {
		return side, stop, err
	}
	server, err := outside.Serve(link.Server(), stock.ServerAddress)
	if err != nil {
		return side, stop, err
	}
	closers = append(closers, func(context.Context) error { return server.Close() })
	r, err := newRunsc(b.opts.Runsc, b.pace, &b.speed)
	if err != nil {
		return side, stop, err
	}
	closers = append(closers, r.close)
	r.namespace = link.Guest()
	if err := b.noteVersions(); err != nil {
		return side, stop, err
	}
	b.progress("start runsc %s with a network", b.report.Machine.Runsc)
	if err := r.boot(ctx, b.c, b.s, netSource); err != nil {
		return side, stop, err
	}
	return netSide{
		suffix: runscSuffix,
		ask:    func(ctx context.Context, program string) (string, error) { return r.ask(ctx, netSource, program) },
		call:   fmt.Sprintf("network(%q, %d, 0, %g)\n", stock.ServerAddress, server.Port(), netSeconds),
	}, stop, nil
}
