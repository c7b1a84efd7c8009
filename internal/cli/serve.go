package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/config"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/values"
)

// Version identifies a build.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// NewVersion returns the version of this build.
func NewVersion(version, commit string) Version {
	return Version{Version: version, Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version and build of ramet", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.showVersion() },
	}
}

func (a *app) showVersion() error {
	v := a.Version
	text := "ramet " + v.Version
	if v.Commit != "" {
		text += " (" + v.Commit + ")"
	}
	return a.Show(v, console.Line(fmt.Sprintf("%s %s %s/%s", text, v.Go, v.OS, v.Arch)))
}

func (a *app) serveCommand() *cobra.Command {
	var opts ServeOptions
	var packages, network, file string
	var trust []string
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the daemon in the foreground", Args: cobra.NoArgs,
		Long: "Run the daemon of this user in the foreground, until SIGINT or SIGTERM.\n\nOther commands start a daemon by themselves if none is running.\n\n" +
			"With --listen it also serves clients with a token over TCP (see 'ramet token'). An address that is not local needs a certificate.\n\n" +
			"The options can be set in a configuration file, also for a daemon that other commands start (see 'ramet config').",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, _, err := a.configure(cmd.Flags(), file); err != nil {
				return err
			}
			most, err := values.ParseMiB("package-cache", packages)
			if err != nil {
				return err
			}
			opts.PackageCache = most << 20
			if cmd.Flags().Changed("network-max") {
				if opts.NetworkMax, err = values.ParseNetwork("network-max", network, a.In); err != nil {
					return err
				}
			}
			if opts.Trust, err = values.ParseKeys("trust", trust); err != nil {
				return err
			}
			return a.Serve(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Listen, "listen", "", "HOST:PORT to listen on besides the socket, for clients with a token")
	f.StringVar(&opts.CertFile, "tls-cert", "", "file with the certificate chain in PEM form; read again when it changes")
	f.StringVar(&opts.KeyFile, "tls-key", "", "file with the key of the certificate")
	f.StringVar(&opts.PortDomain, "port-domain", "", "DOMAIN[:PORT]: browsers find ports at https://PORT-SANDBOX.DOMAIN, which has to lead to this daemon (default localhost, for browsers on this machine)")
	f.StringVar(&opts.E2B, "e2b", "", "HOST:PORT of this machine to serve the interface of E2B at, for its unmodified clients (default with no value 127.0.0.1:3000)")
	f.Lookup("e2b").NoOptDefVal = "127.0.0.1:3000"
	f.StringVar(&opts.E2BDomain, "e2b-domain", "", "DOMAIN[:PORT]: serve clients of E2B over TLS, as api.DOMAIN and PORT-SANDBOX.DOMAIN, with --tls-cert or with a certificate of an authority of its own")
	packages = "4G"
	values.SizeVar(f, &packages, "package-cache", "size of the cache of packages for image builds; the least recently used packages are removed first")
	f.StringVar(&network, "network-max", "", "profile or file with a document, as for --net of create, that bounds what sandboxes of this daemon may reach")
	f.StringArrayVar(&trust, "trust", nil, "key, or file of keys, as 'ramet key' shows it: snapshots are unpacked and pulled only if one of these has signed them; may be repeated")
	f.StringVar(&file, configFlag, "", "configuration file in TOML, whose keys are the names of these options (default config.toml in the directory that 'ramet config' shows)")
	cmd.Flags().BoolVar(&opts.Background, "background", false, "used by ramet itself")
	if err := cmd.Flags().MarkHidden("background"); err != nil {
		panic(err) // the flag is defined in the line before
	}
	return cmd
}

// configFlag names the file with the other flags.
const configFlag = "config"

// effective is what ramet config shows.
type effective struct {
	File     string           `json:"file"`
	Exists   bool             `json:"exists"`
	Settings []config.Setting `json:"settings"`
}

func (a *app) configCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "config", Short: "Show the configuration of the daemon and its file", Args: cobra.NoArgs,
		SuggestFor: []string{"configuration", "settings"},
		Long: "Show the configuration of the daemon and its file.\n\n" +
			"The file is TOML. Its keys are the names of the options of 'ramet serve', such as listen = \":7443\" or trust = [\"key.pub\"]. " +
			"Options on the command line come first. A daemon reads the file when it starts.",
		RunE: func(*cobra.Command, []string) error {
			f := a.serveCommand().Flags()
			err := f.MarkHidden(configFlag)
			if err != nil {
				return err
			}
			e := effective{File: cmp.Or(file, a.ConfigFile)}
			if e.Settings, e.Exists, err = a.configure(f, file); err != nil {
				return err
			}
			rows := make([][]string, len(e.Settings))
			for i, s := range e.Settings {
				rows[i] = []string{s.Name, cmp.Or(s.Value, "-"), string(s.Source)}
			}
			where := e.File
			if !e.Exists {
				where += " (does not exist)"
			}
			return a.Show(e, func(w io.Writer) error {
				if _, err := fmt.Fprintln(w, "file: "+where); err != nil {
					return err
				}
				return console.Table([]string{"OPTION", "VALUE", "FROM"}, rows)(w)
			})
		},
	}
	cmd.Flags().StringVar(&file, configFlag, "", "another configuration file")
	return cmd
}

// configure sets flags that the command line has not by the file, which must exist if it is named, or else by that of
// the user. It returns all settings, and whether the file exists.
func (a *app) configure(f *pflag.FlagSet, file string) (all []config.Setting, exists bool, err error) {
	if _, err := os.Stat(cmp.Or(file, a.ConfigFile)); err == nil {
		exists = true
	} else if file != "" {
		return nil, false, api.Invalid(configFlag, "%v", err)
	}
	all, err = config.Apply(f, cmp.Or(file, a.ConfigFile))
	return all, exists, err
}

// hookCommands returns the commands whose work is given in Deps.
func (a *app) hookCommands() (commands []*cobra.Command) {
	for _, h := range []struct {
		use, short string
		hook       *Hook
		daemon     bool
	}{
		{"demo", "Demonstrate forking on this machine, from start to end", a.Demo, true},
		{"bench", "Measure forks on this machine", a.Bench, true},
		{"doctor", "Check this machine, with a remedy for each problem", a.Doctor, false},
	} {
		if h.hook != nil {
			commands = append(commands, a.hookCommand(h.use, h.short, h.hook, h.daemon))
		}
	}
	return commands
}

func (a *app) hookCommand(use, short string, hook *Hook, daemon bool) *cobra.Command {
	run := func(ctx context.Context, c *client.Client, args []string) error {
		opts := HookOptions{JSON: a.JSON, Args: args, Stderr: a.Err}
		opts.Host = a.Host()
		opts.Reach = func(ctx context.Context) (*client.Client, api.Health, error) { return a.Reach(ctx, false) }
		return hook.Run(ctx, c, a.Out, opts)
	}
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: a.Connected(run)}
	if !daemon {
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), nil, args) }
	}
	if hook.Flags != nil {
		hook.Flags(cmd.Flags())
	}
	return cmd
}
