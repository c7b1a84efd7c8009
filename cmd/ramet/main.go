// Command ramet is everything in one binary: the command line, the daemon, and
// the process that each sandbox is. The first argument decides, before anything
// is built: a sandbox must start as fast as a version is printed.
package main

import (
	"context"
	"os"

	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/client"
	"ramet.dev/ramet/internal/daemon"
	"ramet.dev/ramet/internal/doctor"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/paths"
)

func main() { os.Exit(run(os.Args)) }

func run(args []string) int {
	if len(args) > 1 && args[1] == "sentry" {
		return sentryMain(args[2:])
	}
	if doctor.ChildMain(args) {
		return 0
	}
	return cli.Run(context.Background(), deps(), args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
}

func deps() cli.Deps {
	return cli.Deps{
		Version: buildVersion(),
		Connect: connect,
		Serve:   serve,
		Doctor:  &cli.Hook{Run: runDoctor},
		Demo:    demoHook(),
		Bench:   benchHook(),
	}
}

func connect(ctx context.Context, start bool) (*client.Client, httpwire.Health, error) {
	p, err := paths.Find()
	if err != nil {
		return nil, httpwire.Health{}, err
	}
	if start {
		return daemon.Ensure(ctx, p)
	}
	return daemon.Connect(ctx, p)
}
