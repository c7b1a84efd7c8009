package dockerfile

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"ramet.dev/ramet/api"
)

// Platform of all images and steps: they run on the processor of the host.
const (
	platform     = platformOS + "/" + platformArch
	platformOS   = "linux"
	platformArch = runtime.GOARCH
)

// variants are the first variants of architectures, which an image without one is for.
var variants = map[string]string{"amd64": "/v1", "arm64": "/v8"}

// Scratch is the name of the image without files.
const Scratch = "scratch"

// Options are the parameters of a plan.
type Options struct {
	Target string            // a stage; the last one if empty
	Args   map[string]string // values of ARG
	NoNet  bool              // RUN has no network
	// Setting is what else decides the result of steps, in the words of the caller.
	Setting string
	// Secrets are the ids of those that the build was given.
	Secrets map[string]bool
	// Image returns the image with a reference. It is called after all instructions were checked.
	Image func(ref string) (*api.Image, error)
	// Context selects files of the build context.
	Context func(Sources) (Files, error)
}

// Sources are the files that a COPY or ADD names, in the build context.
type Sources struct {
	Patterns []string // cleaned, without a slash at the beginning; wildcards as of path.Match
}

// Files are selected files of the build context.
type Files interface {
	// Digest names their contents, modes and relative paths.
	Digest() string
}

// Plan is a build.
type Plan struct {
	Stages []*Stage // those that are needed, each after those that it needs; the last one is the result
	Unused []string // values of Options.Args that no ARG takes
}

// Target returns the stage that is built.
func (p *Plan) Target() *Stage { return p.Stages[len(p.Stages)-1] }

// Stage is a file system that is made in steps.
type Stage struct {
	Name   string     // for people
	Image  *api.Image // nil if Base is set
	Base   *Stage
	Steps  []*Step
	Config api.ImageConfig // of an image of the result

	key string // of the state before the first step
}

// Key returns the key of the state after the last step.
func (s *Stage) Key() string {
	if n := len(s.Steps); n > 0 {
		return s.Steps[n-1].Key
	}
	return s.key
}

// Step is an instruction that changes files. One of Run, Copy and Dir is set.
type Step struct {
	Line int
	Text string // for people
	Key  string // of the state after the step
	Run  *Run
	Copy *Copy
	Dir  *Dir
}

// Sources returns the stages that the step takes files of.
func (s *Step) Sources() (stages []*Stage) {
	if s.Copy != nil && s.Copy.From != nil {
		stages = append(stages, s.Copy.From)
	}
	if s.Run == nil {
		return stages
	}
	for _, m := range s.Run.Mounts {
		if m.Copy != nil && m.Copy.From != nil {
			stages = append(stages, m.Copy.From)
		}
	}
	return stages
}

// Run is a command.
type Run struct {
	Argv   []string
	Env    map[string]string
	User   string
	Cwd    string
	NoNet  bool
	Mounts []Mount
	Script string // text that the command executes from the file ScriptPath, or empty
}

// ScriptPath is the file that has the script of a step while it runs.
const ScriptPath = "/tmp/.ramet-build-script"

// Copy puts files into the stage.
type Copy struct {
	From     *Stage   // nil for the build context
	Files    Files    // of the build context
	Patterns []string // in From, absolute
	Inline   []Inline // files whose text is in the Dockerfile
	Dest     string   // absolute
	DestDir  bool     // Dest is a directory in any case
	Owner    string   // user and group, as of --chown; root if empty
	Mode     *uint32  // nil for that of each file
	Unpack   bool
}

// Inline is a file whose text is in the Dockerfile.
type Inline struct{ Name, Data string }

// Dir is a directory that is made if it is missing.
type Dir struct {
	Path string
	User string // who owns it
}

// planner makes a plan.
type planner struct {
	*File
	opt    Options
	lex    *shell.Lex
	global map[string]string // of ARG before FROM
	stages map[int]*Stage
	images map[string]*Stage // of COPY --from=IMAGE
	used   map[string]bool   // build arguments
	plan   *Plan
}

// Plan returns the steps of a build. It fails before it looks for an image if the file has something unsupported.
func (f *File) Plan(opt Options) (*Plan, error) {
	p := &planner{
		File: f, opt: opt, lex: shell.NewLex(f.escape), global: map[string]string{},
		stages: map[int]*Stage{}, images: map[string]*Stage{}, used: map[string]bool{}, plan: &Plan{},
	}
	target, err := f.target(opt.Target)
	if err != nil {
		return nil, err
	}
	if err := p.globals(); err != nil {
		return nil, err
	}
	if err := p.check(target, map[int]bool{}); err != nil {
		return nil, err
	}
	if _, err := p.stage(target); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(opt.Args)) {
		if !p.used[name] && !isProxyArg(name) {
			p.plan.Unused = append(p.plan.Unused, name)
		}
	}
	return p.plan, nil
}

// globals evaluates what is before the first FROM.
func (p *planner) globals() error {
	for name, value := range map[string]string{
		"TARGETPLATFORM": platform, "TARGETOS": platformOS, "TARGETARCH": platformArch, "TARGETVARIANT": "",
		"BUILDPLATFORM": platform, "BUILDOS": platformOS, "BUILDARCH": platformArch, "BUILDVARIANT": "",
	} {
		p.global[name] = value
	}
	for i := range p.args {
		c := &p.args[i]
		for _, arg := range c.Args {
			value, set, err := p.argument(arg, p.global)
			if err != nil {
				return p.invalid(line(c.Location()), "%w", err)
			}
			if set {
				p.global[arg.Key] = value
			}
		}
	}
	return nil
}

// argument returns the value of an ARG: that of the request, or else its default.
func (p *planner) argument(arg instructions.KeyValuePairOptional, env map[string]string) (value string, set bool, err error) {
	if value, ok := p.opt.Args[arg.Key]; ok {
		p.used[arg.Key] = true
		return value, true, nil
	}
	if arg.Value == nil {
		return "", false, nil
	}
	if value, err = p.expand(*arg.Value, env); err == nil {
		err = boundedVariable(arg.Key, value)
	}
	return value, true, err
}

// variables are looked up by the parser's lexer.
type variables map[string]string

func (v variables) Get(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

func (v variables) Keys() []string { return slices.Sorted(maps.Keys(v)) }

const (
	// maxVariable bounds the value that an instruction gives a variable, in bytes.
	maxVariable = 16 << 10
	// maxExpansion bounds the text that variables make of a word, in bytes: variables that contain each other grow fast.
	maxExpansion = 16 << 20
)

func (p *planner) expand(word string, env map[string]string) (string, error) {
	if err := boundedExpansion(word, env); err != nil {
		return "", err
	}
	value, _, err := p.lex.ProcessWord(word, variables(env))
	return value, err
}

// boundedExpansion returns an error if a word might become too long.
func boundedExpansion(word string, env map[string]string) error {
	longest := 0
	for _, value := range env {
		longest = max(longest, len(value))
	}
	if strings.Count(word, "$")*longest > maxExpansion {
		return fmt.Errorf("the variables of %.40q are longer than %d MiB together", word, maxExpansion>>20)
	}
	return nil
}

// boundedVariable returns an error if the value of a variable is too long.
func boundedVariable(name, value string) error {
	if len(value) > maxVariable {
		return fmt.Errorf("%s has %d bytes: a variable may have %d KiB", name, len(value), maxVariable>>10)
	}
	return nil
}

// base returns what a FROM means: a stage, or the reference of an image.
func (p *planner) base(i int) (stage int, ref string, err error) {
	s := &p.File.stages[i]
	at := line(s.Location)
	ref, err = p.expand(s.BaseName, p.global)
	if err != nil {
		return 0, "", p.invalid(at, "%w", err)
	}
	if ref == "" {
		return 0, "", p.invalid(at, "FROM %s is empty: give its ARG a default, or use --build-arg", s.BaseName)
	}
	wanted, err := p.expand(s.Platform, p.global)
	if err != nil {
		return 0, "", p.invalid(at, "%w", err)
	}
	if wanted != "" && wanted != platform && wanted != platform+variants[platformArch] && wanted != platformOS {
		return 0, "", p.unsupported(at, "FROM --platform=%s is not supported: sandboxes run %s", wanted, platform)
	}
	// A number is not a stage here: FROM 0 is an image.
	for j := i - 1; j >= 0; j-- {
		if strings.EqualFold(p.File.stages[j].Name, ref) {
			return j, "", nil
		}
	}
	if ref != Scratch {
		if err := api.ValidImageRef("image", ref); err != nil {
			return 0, "", p.invalid(at, "%s", api.AsError(err).Detail)
		}
	}
	return -1, ref, nil
}

// check refuses unsupported instructions of a stage and of the stages that it needs.
func (p *planner) check(i int, checked map[int]bool) error {
	if checked[i] {
		return nil
	}
	checked[i] = true
	base, _, err := p.base(i)
	if err != nil {
		return err
	}
	if base >= 0 {
		if err := p.check(base, checked); err != nil {
			return err
		}
	}
	for _, c := range p.File.stages[i].Commands {
		if err := p.supported(c); err != nil {
			return err
		}
		if run, ok := c.(*instructions.RunCommand); ok {
			if err := p.supportedMounts(run, i, checked); err != nil {
				return err
			}
		}
		copied, ok := c.(*instructions.CopyCommand)
		if !ok || copied.From == "" {
			continue
		}
		at := line(c.Location())
		switch from := p.stageIndex(copied.From, i); {
		case from >= 0:
			if err := p.check(from, checked); err != nil {
				return err
			}
		case strings.EqualFold(copied.From, p.File.stages[i].Name) && copied.From != "":
			return p.invalid(at, "COPY --from=%s is the stage itself", copied.From)
		case strings.Trim(copied.From, "0123456789") == "":
			return p.invalid(at, "COPY --from=%s is no stage above", copied.From)
		case strings.Contains(copied.From, "$"):
			return p.unsupported(at, "COPY --from=%s: variables are not expanded there; name a stage FROM it", copied.From)
		default:
			if err := api.ValidImageRef("image", copied.From); err != nil {
				return p.invalid(at, "COPY --from=%s is no stage above and no image", copied.From)
			}
		}
	}
	return nil
}

// stage plans a stage and those that it needs.
func (p *planner) stage(i int) (*Stage, error) {
	if s := p.stages[i]; s != nil {
		return s, nil
	}
	source := &p.File.stages[i]
	name := source.Name
	if name == "" {
		name = "stage-" + strconv.Itoa(i)
	}
	s := &Stage{Name: name}
	base, ref, err := p.base(i)
	if err != nil {
		return nil, err
	}
	b := &stager{planner: p, index: i, stage: s, shell: []string{"/bin/sh", "-c"}, args: map[string]string{}}
	if base >= 0 {
		if s.Base, err = p.stage(base); err != nil {
			return nil, err
		}
		s.key, s.Config = s.Base.Key(), clone(s.Base.Config)
	} else {
		if s.Image, err = p.opt.Image(ref); err != nil {
			return nil, p.located(api.CodeOf(err), line(source.Location), "FROM %s: %w", ref, err)
		}
		s.key, s.Config = keyOf("image", s.Image.ID, p.opt.Setting), clone(s.Image.ImageConfig)
	}
	for _, c := range source.Commands {
		if err := b.add(c); err != nil {
			if api.AsError(err).Code != api.CodeInternal {
				return nil, err
			}
			return nil, p.invalid(line(c.Location()), "%w", err)
		}
	}
	p.stages[i] = s
	p.plan.Stages = append(p.plan.Stages, s)
	return s, nil
}

// imageStage returns the stage without steps that an image is in COPY --from.
func (p *planner) imageStage(ref string, at int) (*Stage, error) {
	if s := p.images[ref]; s != nil {
		return s, nil
	}
	img, err := p.opt.Image(ref)
	if err != nil {
		return nil, p.located(api.CodeOf(err), at, "COPY --from=%s: %w", ref, err)
	}
	s := &Stage{Name: ref, Image: img, Config: clone(img.ImageConfig), key: keyOf("image", img.ID, p.opt.Setting)}
	p.images[ref] = s
	p.plan.Stages = append(p.plan.Stages, s)
	return s, nil
}

func clone(c api.ImageConfig) api.ImageConfig {
	c.Env, c.Cmd, c.Entry = slices.Clone(c.Env), slices.Clone(c.Cmd), slices.Clone(c.Entry)
	c.Ports, c.VolumePaths, c.Labels = slices.Clone(c.Ports), slices.Clone(c.VolumePaths), maps.Clone(c.Labels)
	return c
}

// isProxyArg reports whether an argument is known without an ARG, and decides no key.
func isProxyArg(name string) bool {
	switch strings.ToLower(name) {
	case "http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy":
		return true
	}
	return false
}

// title returns the text of an instruction for people, in one line.
func title(c fmt.Stringer) string {
	text := strings.Join(strings.Fields(c.String()), " ")
	if len(text) > maxTitle {
		text = strings.ToValidUTF8(text[:maxTitle], "") + "…"
	}
	return text
}

const maxTitle = 200
