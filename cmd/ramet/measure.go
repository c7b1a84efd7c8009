package main

import (
	"context"
	"io"

	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/bench"
	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/demo"
	"ramet.dev/ramet/internal/workload"
)

func demoHook() *cli.Hook {
	var opts demo.Options
	return &cli.Hook{
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&opts.Image, "image", workload.PythonImage, "image with bash, python3 and numpy; the default image is built if it is missing")
			f.BoolVar(&opts.Keep, "keep", false, "leave the source and its first children running")
		},
		Run: func(ctx context.Context, c *client.Client, stdout io.Writer, hook cli.HookOptions) error {
			if err := noArguments(hook.Args); err != nil {
				return err
			}
			opts.JSON = hook.JSON
			return demo.Run(ctx, c, stdout, opts)
		},
	}
}

func benchHook() *cli.Hook {
	var opts bench.Options
	return &cli.Hook{
		Flags: func(f *pflag.FlagSet) {
			f.IntVar(&opts.Runs, "runs", 0, "runs of each case, always 100 of exec and run_code; metrics are medians (default 5, with --quick 1)")
			f.BoolVar(&opts.Quick, "quick", false, "run only the cases that have a target")
			f.StringSliceVar(&opts.Only, "only", nil, "cases to run, such as create,exec; targets of others are left out (default all)")
			f.StringVar(&opts.Runsc, "runsc", "", "path of a runsc to compare with (needs root)")
		},
		Run: func(ctx context.Context, c *client.Client, stdout io.Writer, hook cli.HookOptions) error {
			if err := noArguments(hook.Args); err != nil {
				return err
			}
			opts.JSON, opts.Fresh = hook.JSON, freshDaemon
			return bench.Run(ctx, c, stdout, hook.Stderr, opts)
		},
	}
}

// noArguments refuses arguments that are not options.
func noArguments(args []string) error {
	if len(args) > 0 {
		return api.Errorf(api.CodeInvalid, "%q is not an option, and the command takes no arguments", args[0])
	}
	return nil
}
