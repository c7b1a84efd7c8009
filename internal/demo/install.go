package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"ramet.dev/ramet/api"
)

const (
	// installed is the package that is installed: it is small and needs no other.
	installed = "six"
	// installTime bounds the step: a registry may not answer.
	installTime = 90 * time.Second
)

// install has pip install a package in the warmed sandbox, which may reach the package registries of
// this host and nothing else meanwhile. It is no failure if there are none.
func (d *demo) install(ctx context.Context) error {
	began := time.Now()
	version, err := d.pip(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		d.report.NotInstalled = err.Error()
		d.say("No package was installed, as this machine reaches no registry: %s", d.report.NotInstalled)
		return nil
	}
	d.report.Installed = installed + " " + version
	d.say("pip installed %s in the running sandbox in %.1f s. It could reach the package registries that this", d.report.Installed, time.Since(began).Seconds())
	d.say("machine is set up with, and nothing else; now it has no network again.")
	return nil
}

// pip installs the package and returns its version.
func (d *demo) pip(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	if _, err := d.c.Networks.Set(ctx, d.source, api.NetworkRequest{Profile: "host-registries"}); err != nil {
		return "", err
	}
	defer func() {
		_, serr := d.c.Networks.Set(context.WithoutCancel(ctx), d.source, api.NetworkRequest{Profile: "none"})
		if err == nil {
			err = serr
		}
	}()
	const command = "python3 -m pip install -q --break-system-packages --no-input --timeout 15 --retries 1 %[1]s >&2 && python3 -c 'import %[1]s; print(%[1]s.__version__)'"
	out, err := d.s.Shell(ctx, d.source, fmt.Sprintf(command, installed))
	return strings.TrimSpace(out), err
}
