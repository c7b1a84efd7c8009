package dockerfile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"ramet.dev/ramet/api"
)

// stager plans the instructions of a stage.
type stager struct {
	*planner
	index  int
	stage  *Stage
	shell  []string
	args   map[string]string // in scope
	hasCmd bool              // CMD is of this stage
}

// defaultPath is the PATH of commands where an image has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// env returns the variables that instructions see: arguments, and over them the environment.
func (b *stager) env() map[string]string {
	env := map[string]string{"PATH": defaultPath}
	maps.Copy(env, b.args)
	for _, kv := range b.stage.Config.Env {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	return env
}

// add plans an instruction. An error without a code gets the line.
func (b *stager) add(c instructions.Command) error {
	env := b.env()
	if ex, ok := c.(instructions.SupportsSingleWordExpansion); ok {
		if _, arg := c.(*instructions.ArgCommand); !arg { // its values are expanded one after the other
			if err := ex.Expand(func(word string) (string, error) { return b.expand(word, env) }); err != nil {
				return err
			}
		}
	}
	if ex, ok := c.(instructions.SupportsSingleWordExpansionRaw); ok {
		lex := shell.NewLex('\\')
		lex.SkipProcessQuotes = true
		if err := ex.ExpandRaw(func(word string) (string, error) {
			if err := boundedExpansion(word, env); err != nil {
				return "", err
			}
			text, _, err := lex.ProcessWord(word, variables(env))
			return text, err
		}); err != nil {
			return err
		}
	}
	config := &b.stage.Config
	switch c := c.(type) {
	case *instructions.ArgCommand:
		return b.arg(c)
	case *instructions.EnvCommand:
		for _, kv := range c.Env {
			if err := boundedVariable(kv.Key, kv.Value); err != nil {
				return err
			}
			config.Env = setEnv(config.Env, kv.Key, kv.Value)
		}
	case *instructions.LabelCommand:
		for _, kv := range c.Labels {
			b.label(kv.Key, kv.Value)
		}
	case *instructions.MaintainerCommand:
		b.label("maintainer", c.Maintainer)
	case *instructions.ShellCommand:
		b.shell = c.Shell
	case *instructions.UserCommand:
		config.User = c.User
	case *instructions.WorkdirCommand:
		return b.workdir(c)
	case *instructions.CmdCommand:
		config.Cmd, b.hasCmd = b.command(c.ShellDependantCmdLine), true
	case *instructions.EntrypointCommand:
		config.Entry = b.command(c.ShellDependantCmdLine)
		if !b.hasCmd {
			config.Cmd = nil
		}
	case *instructions.ExposeCommand:
		return b.expose(c, env)
	case *instructions.VolumeCommand:
		for _, v := range c.Volumes {
			if v == "" {
				return fmt.Errorf("VOLUME has an empty path")
			}
			config.VolumePaths = with(config.VolumePaths, v)
		}
	case *instructions.StopSignalCommand:
		config.StopSignal = c.Signal
	case *instructions.HealthCheckCommand:
		h := c.Health
		config.Healthcheck = &api.Healthcheck{
			Test: h.Test, IntervalMS: h.Interval.Milliseconds(), TimeoutMS: h.Timeout.Milliseconds(), StartPeriodMS: h.StartPeriod.Milliseconds(), Retries: h.Retries,
		}
	case *instructions.RunCommand:
		return b.run(c)
	case *instructions.CopyCommand:
		return b.copy(c, title(c), c.SourcesAndDest, c.From, c.Chown, c.Chmod, false)
	case *instructions.AddCommand:
		return b.copy(c, title(c), c.SourcesAndDest, "", c.Chown, c.Chmod, true)
	default:
		return b.unsupported(line(c.Location()), "%s is not supported", strings.ToUpper(c.Name()))
	}
	return nil
}

func (b *stager) label(name, value string) {
	if b.stage.Config.Labels == nil {
		b.stage.Config.Labels = map[string]string{}
	}
	b.stage.Config.Labels[name] = value
}

func (b *stager) arg(c *instructions.ArgCommand) error {
	for _, arg := range c.Args {
		name, err := b.expand(arg.Key, b.env())
		if err != nil {
			return err
		}
		arg.Key = name
		value, set, err := b.argument(arg, b.env())
		if err != nil {
			return err
		}
		if global, ok := b.global[arg.Key]; !set && ok {
			value, set = global, true
		}
		if set {
			b.args[arg.Key] = value
		}
	}
	return nil
}

// setEnv sets a variable at its place in an environment, or at the end.
func setEnv(env []string, name, value string) []string {
	kv := name + "=" + value
	if i := slices.IndexFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") }); i >= 0 {
		env[i] = kv
		return env
	}
	return append(env, kv)
}

// with returns a sorted list that has text.
func with(list []string, text string) []string {
	if i, found := slices.BinarySearch(list, text); !found {
		return slices.Insert(list, i, text)
	}
	return list
}

// maxPorts bounds the ports of an image.
const maxPorts = 1 << 17

// expose adds ports, whose protocol is tcp if none is given.
func (b *stager) expose(c *instructions.ExposeCommand, env map[string]string) error {
	all := b.stage.Config.Ports
	for _, text := range c.Ports {
		if err := boundedExpansion(text, env); err != nil {
			return err
		}
		ports, err := b.lex.ProcessWords(text, variables(env))
		if err != nil {
			return err
		}
		for _, port := range ports {
			numbers, protocol, ok := strings.Cut(port, "/")
			if !ok {
				protocol = "tcp"
			}
			first, last, isRange := strings.Cut(numbers, "-")
			if !isRange {
				last = first
			}
			low, err := strconv.ParseUint(first, 10, 16)
			high, err2 := strconv.ParseUint(last, 10, 16)
			if err != nil || err2 != nil || low == 0 || low > high {
				return fmt.Errorf("EXPOSE %s is no port: PORT, PORT/tcp, PORT/udp and FIRST-LAST are", port)
			}
			for n := low; n <= high; n++ {
				all = append(all, fmt.Sprintf("%d/%s", n, strings.ToLower(protocol)))
			}
			if len(all) > maxPorts {
				return fmt.Errorf("EXPOSE has more than %d ports", maxPorts)
			}
		}
	}
	slices.Sort(all)
	b.stage.Config.Ports = slices.Compact(all)
	return nil
}

// cwd returns the directory of the next instruction.
func (b *stager) cwd() string {
	if dir := b.stage.Config.Cwd; dir != "" {
		return dir
	}
	return "/"
}

func (b *stager) absolute(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(b.cwd(), p)
}

func (b *stager) workdir(c *instructions.WorkdirCommand) error {
	if c.Path == "" {
		return fmt.Errorf("WORKDIR is empty")
	}
	dir := &Dir{Path: b.absolute(c.Path), User: b.stage.Config.User}
	b.stage.Config.Cwd = dir.Path
	b.step(&Step{Line: line(c.Location()), Text: title(c), Dir: dir}, "dir", dir.Path, dir.User)
	return nil
}

// command returns the arguments of CMD or ENTRYPOINT.
func (b *stager) command(c instructions.ShellDependantCmdLine) []string {
	if c.PrependShell && len(c.CmdLine) > 0 {
		return append(slices.Clone(b.shell), strings.Join(c.CmdLine, " "))
	}
	return c.CmdLine
}

func (b *stager) run(c *instructions.RunCommand) error {
	r := &Run{
		User: b.stage.Config.User, Cwd: b.cwd(), Env: b.env(),
		NoNet: b.opt.NoNet || instructions.GetNetwork(c) == instructions.NetworkNone,
	}
	args := c.CmdLine
	if len(c.Files) > 0 {
		if len(args) != 1 || !c.PrependShell {
			return fmt.Errorf("RUN has a here-document and no shell to read it")
		}
		first := c.Files[0]
		switch single, _ := parser.ParseHeredoc(args[0]); {
		case single == nil: // the shell reads the documents
			text := args[0]
			for _, file := range c.Files {
				text += "\n" + file.Data + file.Name
			}
			args = []string{text}
		default:
			data := first.Data
			if first.Chomp {
				data = parser.ChompHeredocContent(data)
			}
			args = []string{data}
			if strings.HasPrefix(data, "#!") {
				r.Script, args, c.PrependShell = data, []string{ScriptPath}, false
			}
		}
	}
	if r.Argv = args; c.PrependShell {
		r.Argv = append(slices.Clone(b.shell), strings.Join(args, " "))
	}
	env := slices.Sorted(func(yield func(string) bool) {
		for name, value := range r.Env {
			if !yield(name + "=" + value) {
				return
			}
		}
	})
	decides := []any{"run", r.Argv, env, r.User, r.Cwd, r.NoNet, r.Script}
	mounts, decide, err := b.mounts(c)
	if err != nil {
		return err
	}
	if r.Mounts = mounts; len(mounts) > 0 {
		decides = append(decides, decide)
	}
	b.step(&Step{Line: line(c.Location()), Text: title(c), Run: r}, decides...)
	for name, value := range b.opt.Args {
		if isProxyArg(name) {
			r.Env[name] = value // after the key: it changes how a step reaches its sources
		}
	}
	return nil
}

func (b *stager) copy(c instructions.Command, text string, s instructions.SourcesAndDest, from, owner, mode string, unpack bool) (err error) {
	at := line(c.Location())
	p := &Copy{Dest: b.absolute(s.DestPath), Owner: owner, Unpack: unpack}
	p.DestDir = strings.HasSuffix(s.DestPath, "/") || strings.HasSuffix(s.DestPath, "/.") || s.DestPath == "." || len(s.SourcePaths)+len(s.SourceContents) > 1
	if mode != "" {
		n, err := strconv.ParseUint(mode, 8, 32)
		if err != nil || n > 0o7777 {
			return b.unsupported(at, "--chmod=%s is not supported: octal numbers up to 7777 are", mode)
		}
		bits := uint32(n)
		p.Mode = &bits
	}
	for _, inline := range s.SourceContents {
		p.Inline = append(p.Inline, Inline{inline.Path, inline.Data})
	}
	var patterns []string
	for _, source := range s.SourcePaths {
		if unpack && isRemote(source) { // known only after its variables were expanded
			return b.unsupported(at, "ADD of %q is not supported: only local files are; use RUN with curl or git", source)
		}
		if _, err := path.Match(source, ""); err != nil {
			return fmt.Errorf("%q is not a pattern: %w", source, err)
		}
		patterns = append(patterns, path.Join("/", source))
	}
	source := ""
	switch {
	case from != "":
		if i := b.stageIndex(from, b.index); i >= 0 {
			p.From, err = b.planner.stage(i)
		} else {
			p.From, err = b.imageStage(from, at)
		}
		if err != nil {
			return err
		}
		p.Patterns, source = patterns, p.From.Key()
	case len(patterns) > 0:
		relative := make([]string, len(patterns))
		for i, pattern := range patterns {
			relative[i] = strings.TrimPrefix(pattern, "/")
		}
		if p.Files, err = b.opt.Context(Sources{Patterns: relative}); err != nil {
			return b.located(api.CodeOf(err), at, "%s: %w", strings.ToUpper(c.Name()), err)
		}
		source = p.Files.Digest()
	}
	b.step(&Step{Line: at, Text: text, Copy: p}, "copy", from != "", source, p.Patterns, p.Inline, p.Dest, p.DestDir, p.Owner, p.Mode, p.Unpack)
	return nil
}

// step adds a step, whose key is made of that of the state before and of what decides its result.
func (b *stager) step(s *Step, decides ...any) {
	s.Key = keyOf(b.stage.Key(), decides...)
	b.stage.Steps = append(b.stage.Steps, s)
}

// keyVersion changes when the same step is carried out in another way.
const keyVersion = 1

func keyOf(before string, decides ...any) string {
	text, err := json.Marshal([]any{keyVersion, before, decides})
	if err != nil {
		panic(err) // texts, numbers and lists of them
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ResultKey names the image that a stage with its configuration is.
func (s *Stage) ResultKey() string { return keyOf(s.Key(), s.Config) }
