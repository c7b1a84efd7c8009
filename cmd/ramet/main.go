// Command ramet is everything in one binary: the command line, the daemon and,
// embedded, the program that sandboxes run in.
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/daemon"
	"ramet.dev/ramet/internal/doctor"
	"ramet.dev/ramet/internal/observe/tracing"
	"ramet.dev/ramet/internal/storage/paths"
)

func main() { os.Exit(run(os.Args)) }

func run(args []string) int {
	if doctor.ChildMain(args) {
		return 0
	}
	relaxTimers()
	ctx, ended := traced(context.Background(), args[1:])
	code := cli.Run(ctx, deps(), args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	ended(code)
	return code
}

// relaxTimers lets the kernel wake this process for a timer up to two milliseconds late
// (PR_SET_TIMERSLACK in prctl(2)). Go's monitor thread wakes every 20 µs while a program has work.
// With the usual slack, that is a dozen times while a sandbox runs a command, on processors that
// have other work. The price: a goroutine that is ready while all others block in system calls
// waits up to two milliseconds for one of their processors. A process with a single processor keeps
// its slack.
func relaxTimers() {
	const slack = 2 * time.Millisecond
	if runtime.GOMAXPROCS(0) > 1 {
		// With cgo the call fails, and nothing changes.
		_, _, _ = syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, uintptr(slack), 0)
	}
}

// tracesTimeout bounds the time that a command waits until its traces are sent.
const tracesTimeout = 3 * time.Second

// traced makes a command a span, if the environment names a collector. A daemon is not a span: each
// of its requests is one.
func traced(ctx context.Context, args []string) (context.Context, func(code int)) {
	warn := func(err error) { fmt.Fprintln(os.Stderr, "ramet: warning: traces:", err) }
	if len(args) == 0 || args[0] == "serve" {
		return ctx, func(int) {}
	}
	traces, err := tracing.Open("ramet", buildVersion().Version, os.Getenv, warn)
	if err != nil {
		warn(err)
	}
	ctx, ended := traces.Root(ctx, "ramet "+args[0], os.Getenv("TRACEPARENT"))
	return ctx, func(code int) {
		failure := ""
		if code != 0 {
			failure = fmt.Sprint("exit code ", code)
		}
		ended(failure)
		closeTraces(traces)
	}
}

// closeTraces sends the remaining traces. Errors are reported as all others are.
func closeTraces(traces *tracing.Tracing) {
	ctx, cancel := context.WithTimeout(context.Background(), tracesTimeout)
	defer cancel()
	_ = traces.Close(ctx)
}

func deps() cli.Deps {
	return cli.Deps{
		Version:    buildVersion(),
		Connect:    connect,
		Serve:      serve,
		ConfigFile: configFile(),
		Doctor:     doctorHook(),
		Demo:       demoHook(),
		Bench:      benchHook(),
	}
}

// configFile returns the configuration file of the daemon, empty if no directory for it is known.
func configFile() string {
	p, err := paths.Find()
	if err != nil {
		return "" // each command says why
	}
	return p.Config()
}

func connect(ctx context.Context, start bool) (*client.Client, api.Health, error) {
	p, err := paths.Find()
	if err != nil {
		return nil, api.Health{}, err
	}
	find := daemon.Connect
	if start {
		find = daemon.Ensure
	}
	c, h, err := find(ctx, p)
	if err == nil {
		c.Around(tracing.Transport)
	}
	return c, h, err
}
