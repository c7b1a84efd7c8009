package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/httpwire"
)

// exitUsage is the exit code of errors in the arguments.
const exitUsage = 2

// Deps are the parts of the program that commands call and that this package does not know.
type Deps struct {
	Version Version
	// Connect returns a client of the user's own daemon, and the daemon's health. If start is
	// set, it starts a daemon if none is running.
	Connect func(ctx context.Context, start bool) (*client.Client, api.Health, error)
	// Serve runs a daemon until ctx ends.
	Serve func(ctx context.Context, opts ServeOptions) error
	// ConfigFile is the configuration file of the daemon, empty if there is no directory for it.
	ConfigFile string
	// Doctor, Demo and Bench are the work of optional commands. A nil Hook has no command.
	Doctor *Hook
	Demo   *Hook
	Bench  *Hook
}

// ServeOptions are the options of the serve command.
type ServeOptions struct {
	// Background is set by ramet when it starts a daemon by itself.
	Background bool
	// Listen is HOST:PORT, or empty; the files are PEM.
	Listen, CertFile, KeyFile string
	// PortDomain is the domain of the host names of ports, or empty.
	PortDomain string
	// E2B is HOST:PORT for clients of E2B, or empty. E2BDomain is what their hosts end with: DOMAIN or
	// DOMAIN:PORT, over TLS; empty for no TLS.
	E2B, E2BDomain string
	// PackageCache is the size of the cache of packages for image builds, in bytes.
	PackageCache int64
	// NetworkMax bounds what sandboxes may reach; nil if nothing does.
	NetworkMax *api.NetworkRequest
	// Trust are the keys one of which must have signed a snapshot that is unpacked or pulled; empty for none.
	Trust []string
}

// Hook is a command whose work is done outside this package.
type Hook struct {
	// Flags, if not nil, adds options of its own.
	Flags func(*pflag.FlagSet)
	// Run does the work. c is nil for Doctor, which must not start a daemon.
	Run HookFunc
}

// HookFunc is the work of a Hook. Its error decides the exit code and is printed, unless it is an
// ExitError.
type HookFunc func(ctx context.Context, c *client.Client, stdout io.Writer, opts HookOptions) error

// HookOptions are the options that every Hook has.
type HookOptions struct {
	JSON   bool
	Args   []string
	Stderr io.Writer
	// Host is the daemon that --host or its variable names, empty for the user's own,
	// and Reach connects to it. A Hook with a client has that daemon's already.
	Host  string
	Reach func(context.Context) (*client.Client, api.Health, error)
}

// Stdio are the standard streams of a command.
type Stdio = console.Streams

// ExitError ends a command with an exit code and without a message.
type ExitError = session.ExitError

// app is one run of the command line.
type app struct {
	*session.Session
	Deps
	// running is set when the arguments are parsed: later errors are not about the usage.
	running bool
}

func newApp(deps Deps, stdio Stdio) *app {
	return &app{Session: session.New(stdio, deps.Version.Version, deps.Connect), Deps: deps}
}

// Run runs the command that args (without the program's name) ask for and
// returns its exit code. An interrupt cancels ctx; a second one ends the process.
func Run(ctx context.Context, deps Deps, args []string, stdio Stdio) int {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	a := newApp(deps, stdio)
	root := a.rootCommand()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	a.Close()
	return a.exitCode(ctx, cmd, err, args)
}

// exitCode reports the error err of cmd and returns its exit code.
func (a *app) exitCode(ctx context.Context, cmd *cobra.Command, err error, args []string) int {
	var exit ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	case !a.running:
		err = api.Errorf(api.CodeInvalid, "%w", err)
		a.JSON = asksForJSON(args)
	}
	code := api.CodeOf(err)
	if ctx.Err() != nil { // the interrupt is the cause of any other error
		err, code = api.Errorf(api.CodeCanceled, "interrupted"), api.CodeCanceled
	}
	switch {
	case a.JSON:
		if werr := a.WriteJSON(httpwire.NewProblem(err)); werr != nil {
			fmt.Fprintln(a.Err, "ramet:", werr)
		}
	case !a.running:
		fmt.Fprintf(a.Err, "ramet: %v\n%s", err, usageOf(cmd))
	default:
		for _, err := range eachOf(err) {
			fmt.Fprintln(a.Err, "ramet:", a.AsTyped(message(cmd, err)))
		}
	}
	if !a.running {
		return exitUsage
	}
	return code.ExitCode()
}

// eachOf returns the errors that errors.Join made err of, or err alone.
func eachOf(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || fmt.Sprint(errors.Join(joined.Unwrap()...)) != err.Error() { // a wrapper of several errors, with a text of its own
		return []error{err}
	}
	return joined.Unwrap()
}

// usageOf returns the usage lines that follow an error in the arguments of cmd.
func usageOf(cmd *cobra.Command) string {
	see := fmt.Sprintf("see '%s --help'\n", cmd.CommandPath())
	if cmd.HasSubCommands() {
		return see
	}
	return "usage: " + cmd.UseLine() + "\n" + see
}

// asksForJSON reports whether args that could not be parsed ask for JSON.
func asksForJSON(args []string) bool {
	for _, arg := range args {
		if arg == "--" {
			return false
		}
		if arg == "--json" || arg == "--json=true" {
			return true
		}
	}
	return false
}

func (a *app) rootCommand() *cobra.Command {
	var version bool
	root := &cobra.Command{
		Use:   "ramet",
		Short: "Fork live sandboxes: files, memory and running processes",
		Long: "Run code in sandboxes that can be forked while they live: files, memory and running processes.\n\n" +
			"The first command starts a daemon for your user. A name is accepted wherever an id is.",
		SilenceErrors: true,
		// SuggestionsMinimumDistance is the number of wrong letters up to which a command is suggested.
		SuggestionsMinimumDistance: 2,
		SilenceUsage:               true,
		PersistentPreRun: func(*cobra.Command, []string) {
			a.running = true
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				return a.showVersion()
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print the version, as 'ramet version' does")
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	a.Flags(root.PersistentFlags())
	a.addCommands(root)
	explainUsage(root)
	return root
}
