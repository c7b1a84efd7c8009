package images

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/build"
	"ramet.dev/ramet/internal/build/contextdir"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/values"
)

const (
	defaultFile = "Dockerfile"
	ignoreFile  = ".dockerignore"
)

// buildFlags are the options of image build.
type buildFlags struct {
	packages api.ImageBuild
	quiet    bool
	file     string
	tag      string
	target   string
	args     []string
	secrets  []string
	network  string
	warm     string
	ready    string
	trust    bool
	noCache  bool
	pull     bool
}

// dockerfileOptions are those that only a Dockerfile has, and packageOptions those that only packages have.
var (
	dockerfileOptions = []string{"file", "tag", "target", "build-arg", "secret", "network", "trust-host-ca", "warm", "ready", "no-cache", "pull"}
	packageOptions    = []string{"from", "suite", "include"}
)

func (g *Group) imageBuild() *cobra.Command {
	o := &buildFlags{}
	cmd := &cobra.Command{
		Use:   "build [NAME] [CONTEXT]",
		Short: "Make an image of a Dockerfile, or of packages of a distribution",
		Long: `Make an image of a Dockerfile, or of packages of a distribution.

With CONTEXT or one of the options of Dockerfiles, the image is made of a Dockerfile: its commands run in a sandbox, and COPY takes files of the directory CONTEXT, without those that .dockerignore excludes. The state after each step is kept as a snapshot, from which later builds continue. An unsupported instruction is refused with file and line before the first step.

Otherwise the image NAME is made of packages, from the mirrors that this machine uses. Packages are verified, and their scripts run in a sandbox. The image python, without packages that are named, has pip, venv, numpy, git and curl: it is what create makes where it is missing.`,
		Args: cobra.RangeArgs(1, 2),
	}
	cmd.RunE = g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
		option := ""
		for _, name := range dockerfileOptions {
			if cmd.Flags().Changed(name) {
				option = name
				break
			}
		}
		if option == "" && len(args) == 1 {
			if args[0] == api.PythonImage && !cmd.Flags().Changed("include") {
				o.packages.Include = api.PythonBuild().Include
			}
			return g.makeImage(ctx, c, api.ImageRequest{Name: args[0], Build: &o.packages}, o.quiet)
		}
		for _, name := range packageOptions {
			if cmd.Flags().Changed(name) {
				return api.Invalid(name, "--%s is for packages and cannot be combined with a Dockerfile", name)
			}
		}
		return g.buildDockerfile(ctx, c, o, args)
	})
	f := cmd.Flags()
	f.StringVar(&o.packages.From, "from", "debian", "distribution")
	f.StringVar(&o.packages.Suite, "suite", "", "release of the distribution (default that of this machine)")
	f.StringSliceVar(&o.packages.Include, "include", nil, "package to install; may be repeated")
	f.StringVarP(&o.file, "file", "f", "", "Dockerfile (default CONTEXT/Dockerfile); - is standard input")
	f.StringVarP(&o.tag, "tag", "t", "", "name of the image that a Dockerfile makes, instead of NAME")
	f.StringVar(&o.target, "target", "", "stage of the Dockerfile to build (default the last one)")
	f.StringArrayVar(&o.args, "build-arg", nil, "value of an ARG of the Dockerfile as NAME=VALUE, or NAME for the value of the environment; may be repeated")
	f.StringArrayVar(&o.secrets, "secret", nil, "secret for RUN --mount=type=secret, as id=ID,src=FILE or id=ID,env=NAME; no image and no snapshot has it; may be repeated")
	f.StringVar(&o.network, "network", "open", "network of RUN: open for public addresses, none, or another profile (see 'ramet network profiles')")
	f.BoolVar(&o.trust, "trust-host-ca", true, "with a network, steps trust the certificate authorities of this host that the base image lacks, and so does the image")
	f.StringVar(&o.warm, "warm", "", "command to run in a sandbox of the image; the snapshot NAME with its processes is what create starts from, and the image is named NAME-cold")
	f.StringVar(&o.ready, "ready", "", "command that succeeds once that of --warm is ready (default the health check of the image, or else the end of the command)")
	f.BoolVar(&o.noCache, "no-cache", false, "run all steps of the Dockerfile again")
	f.BoolVar(&o.pull, "pull", false, "ask the registries for newer base images of the Dockerfile")
	values.QuietVar(f, &o.quiet)
	return cmd
}

// buildDockerfile makes an image of a Dockerfile.
func (g *Group) buildDockerfile(ctx context.Context, c *client.Client, o *buildFlags, args []string) error {
	name, dir := o.tag, args[len(args)-1]
	if len(args) == 2 {
		if name != "" && name != args[0] {
			return api.Invalid("tag", "%q and %q are two names", args[0], name)
		}
		name = args[0]
	}
	if name == "" {
		return api.Invalid("tag", "the image has no name: give --tag NAME, or NAME before the directory %q", dir)
	}
	if err := api.ValidImageRef("tag", name); err != nil {
		return err
	}
	buildArgs, err := buildArguments(o.args)
	if err != nil {
		return err
	}
	secrets, err := buildSecrets(o.secrets)
	if err != nil {
		return err
	}
	files, err := contextdir.Open(dir, contextdir.Limits{})
	if err != nil {
		return err
	}
	defer files.Close()
	file, text, err := g.readDockerfile(files, dir, o.file)
	if err != nil {
		return err
	}
	ignores := []string{ignoreFile}
	if inside := within(dir, file); inside != "" {
		ignores = []string{inside + ignoreFile, ignoreFile}
	}
	if err := files.ReadIgnore(ignores...); err != nil {
		return err
	}
	if o.ready != "" && o.warm == "" {
		return api.Invalid("ready", "it is about a command of --warm")
	}
	state := name
	if o.warm != "" {
		if err := build.CheckWarm(ctx, c, name); err != nil {
			return err
		}
		name += "-cold"
	}
	req := build.Request{
		File: file, Text: text, Context: files, Name: name, Target: o.target, Args: buildArgs, Secrets: secrets, NoCache: o.noCache, Pull: o.pull, Out: g.Err,
	}
	if !o.trust {
		req.TrustHostCA = &o.trust
	}
	if o.network != "none" {
		req.Network = &api.NetworkRequest{Profile: o.network}
	}
	var said bytes.Buffer
	if o.quiet || g.JSON {
		req.Out = &tail{buffer: &said}
	}
	img, err := build.Run(ctx, c, req)
	var snap *api.Snapshot
	if err == nil && o.warm != "" {
		snap, err = build.Warm(ctx, c, build.WarmRequest{Image: img, Name: state, Command: build.Shell(o.warm), Ready: build.Shell(o.ready), Network: req.Network, TrustHostCA: req.TrustHostCA, Out: req.Out})
	}
	if err != nil {
		if said.Len() > 0 && !g.JSON {
			_, _ = g.Err.Write(said.Bytes()) // the reason for the failure
		}
		return err
	}
	if snap != nil {
		return g.Show(snap, console.Line(snap.ID))
	}
	return g.Show(img, console.Line(img.ID))
}

// tail keeps the end of what is written.
type tail struct{ buffer *bytes.Buffer }

const maxTail = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.buffer.Write(p)
	if over := t.buffer.Len() - maxTail; over > 0 {
		t.buffer.Next(over)
	}
	return len(p), nil
}

// buildArguments parses the values of --build-arg.
func buildArguments(texts []string) (map[string]string, error) {
	args := map[string]string{}
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if name == "" {
			return nil, api.Invalid("build-arg", "%q is not NAME=VALUE or NAME", text)
		}
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				continue
			}
		}
		args[name] = value
	}
	return args, nil
}

// maxSecret bounds a secret, in bytes, as Docker does.
const maxSecret = 500 << 10

// buildSecrets reads the secrets of --secret. Without src and env, the variable ID has it, or else the file ID.
func buildSecrets(texts []string) (map[string]string, error) {
	secrets := map[string]string{}
	for _, text := range texts {
		fields := map[string]string{}
		for part := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(part, "=")
			switch key {
			case "source":
				key = "src"
			case "id", "src", "env":
			case "type":
				if value == "file" || value == "env" {
					continue
				}
				ok = false
			default:
				ok = false
			}
			if !ok || value == "" {
				return nil, api.Invalid("secret", "%q is not id=ID,src=FILE or id=ID,env=NAME", text)
			}
			fields[key] = value
		}
		id := fields["id"]
		if id == "" {
			return nil, api.Invalid("secret", "%q has no id", text)
		}
		name := fields["env"]
		if name == "" && fields["src"] == "" {
			if _, ok := os.LookupEnv(id); ok {
				name = id
			} else {
				fields["src"] = id
			}
		}
		if name != "" {
			value, ok := os.LookupEnv(name)
			if !ok {
				return nil, api.Invalid("secret", "the environment has no variable %s", name)
			}
			secrets[id] = value
			continue
		}
		f, err := os.Open(fields["src"])
		if err != nil {
			return nil, api.Invalid("secret", "%w", err)
		}
		value, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
		f.Close()
		switch {
		case err != nil:
			return nil, api.Invalid("secret", "%w", err)
		case len(value) > maxSecret:
			return nil, api.Invalid("secret", "%s has more than %d KiB", fields["src"], maxSecret>>10)
		}
		secrets[id] = string(value)
	}
	return secrets, nil
}

// within returns the path of a file below a directory, or an empty text if it is elsewhere.
func within(dir, file string) string {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if file, err = filepath.Abs(file); err != nil {
		return ""
	}
	rel, err := filepath.Rel(absolute, file)
	if err != nil || !filepath.IsLocal(rel) {
		return ""
	}
	return filepath.ToSlash(rel)
}

// readDockerfile reads the Dockerfile. A file of the context is opened beneath it, because its links are not trusted.
func (g *Group) readDockerfile(files *contextdir.Dir, dir, file string) (name string, text []byte, err error) {
	if file == "-" {
		text, err = contextdir.ReadText(g.In, "standard input")
		return defaultFile, text, err
	}
	if file == "" {
		file = filepath.Join(dir, defaultFile)
	}
	if inside := within(dir, file); inside != "" {
		text, err = files.Text(inside)
		return file, text, err
	}
	f, err := os.Open(file)
	if err != nil {
		return "", nil, api.Invalid("file", "%w", err)
	}
	defer f.Close()
	text, err = contextdir.ReadText(io.Reader(f), file)
	return file, text, err
}
