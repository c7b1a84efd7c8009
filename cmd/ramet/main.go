// Command ramet is everything in one binary: the command line, the daemon, and,
// embedded, the program that sandboxes run in.
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
