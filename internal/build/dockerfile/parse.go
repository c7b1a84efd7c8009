package dockerfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"ramet.dev/ramet/api"
)

const (
	// MaxBytes bounds the text of a Dockerfile.
	MaxBytes = 1 << 20
	// maxInstructions bounds its instructions.
	maxInstructions = 2000
)

// File is a Dockerfile. A plan changes it, so that it is planned once.
type File struct {
	name   string
	escape rune
	args   []instructions.ArgCommand // before the first FROM
	stages []instructions.Stage
}

// located is an error of a line.
func (f *File) located(code api.Code, line int, format string, args ...any) error {
	return api.Errorf(code, "%s:%d: %w", f.name, line, fmt.Errorf(format, args...))
}

func (f *File) invalid(line int, format string, args ...any) error {
	return f.located(api.CodeInvalid, line, format, args...)
}

func (f *File) unsupported(line int, format string, args ...any) error {
	return f.located(api.CodeUnsupported, line, format, args...)
}

// Parse reads a Dockerfile. name is its name in errors.
func Parse(name string, text []byte) (*File, error) {
	f := &File{name: name}
	if len(text) > MaxBytes {
		return nil, api.Invalid("file", "%s has more than %d KiB", name, MaxBytes>>10)
	}
	result, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, f.parseError(err)
	}
	f.escape = result.EscapeToken
	if n := len(result.AST.Children); n > maxInstructions {
		return nil, api.Invalid("file", "%s has %d instructions, more than %d", name, n, maxInstructions)
	}
	for _, node := range result.AST.Children {
		if err := f.add(node); err != nil {
			return nil, err
		}
	}
	if len(f.stages) == 0 {
		return nil, f.invalid(1, "there is no FROM")
	}
	return f, nil
}

// parseError gives an error of the parser its line.
func (f *File) parseError(err error) error {
	line := 1
	var at *parser.LocationError
	if errors.As(err, &at) && len(at.Locations) > 0 && len(at.Locations[0]) > 0 {
		line = max(1, at.Locations[0][0].Start.Line)
	}
	return f.invalid(line, "%w", err)
}

func (f *File) add(node *parser.Node) error {
	parsed, err := instructions.ParseInstruction(node)
	if err != nil {
		return f.invalid(node.StartLine, "%w", err)
	}
	switch c := parsed.(type) {
	case *instructions.Stage:
		f.stages = append(f.stages, *c)
		return nil
	case *instructions.ArgCommand:
		if len(f.stages) == 0 {
			f.args = append(f.args, *c)
			return nil
		}
	}
	c, ok := parsed.(instructions.Command)
	if !ok || len(f.stages) == 0 {
		return f.invalid(node.StartLine, "%s before FROM: only ARG may be there", strings.ToUpper(node.Value))
	}
	f.stages[len(f.stages)-1].AddCommand(c)
	return nil
}

// stageIndex returns the last stage below before that has a name or number, or -1.
func (f *File) stageIndex(name string, before int) int {
	for i := before - 1; i >= 0; i-- {
		if strings.EqualFold(f.stages[i].Name, name) {
			return i
		}
	}
	for i := range before {
		if name == fmt.Sprint(i) {
			return i
		}
	}
	return -1
}

// target returns the index of the stage to build.
func (f *File) target(name string) (int, error) {
	if name == "" {
		return len(f.stages) - 1, nil
	}
	if i := f.stageIndex(name, len(f.stages)); i >= 0 {
		return i, nil
	}
	var names []string
	for i := range f.stages {
		if n := f.stages[i].Name; n != "" {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return 0, api.Invalid("target", "%s has no stage %q: none of its stages has a name", f.name, name)
	}
	return 0, api.Invalid("target", "%s has no stage %q: it has %s", f.name, name, strings.Join(names, ", "))
}

// line returns the first line of an instruction.
func line(at []parser.Range) int {
	if len(at) == 0 {
		return 1
	}
	return at[0].Start.Line
}

// supported returns an error if an instruction cannot be carried out.
func (f *File) supported(c instructions.Command) error {
	at := line(c.Location())
	switch c := c.(type) {
	case *instructions.OnbuildCommand:
		return f.unsupported(at, "ONBUILD is not supported: write its instruction in the Dockerfile that builds on the image")
	case *instructions.RunCommand:
		return f.supportedRun(c, at)
	case *instructions.CopyCommand:
		if c.Parents || len(c.ExcludePatterns) > 0 {
			return f.unsupported(at, "COPY --parents and --exclude are not supported: use .dockerignore")
		}
		return f.validCopy(at, "COPY", c.SourcesAndDest)
	case *instructions.AddCommand:
		if c.Checksum != "" || c.KeepGitDir || len(c.ExcludePatterns) > 0 {
			return f.unsupported(at, "ADD --checksum, --keep-git-dir and --exclude are not supported")
		}
		for _, source := range c.SourcePaths {
			if isRemote(source) {
				return f.unsupported(at, "ADD of %q is not supported: only local files are; use RUN with curl or git", source)
			}
		}
		return f.validCopy(at, "ADD", c.SourcesAndDest)
	}
	return nil
}

func (f *File) validCopy(at int, name string, s instructions.SourcesAndDest) error {
	if len(s.SourcePaths)+len(s.SourceContents) > 1 && !strings.HasSuffix(s.DestPath, "/") && !strings.Contains(s.DestPath, "$") {
		return f.invalid(at, "%s of several sources needs a directory as destination: %q has no / at its end", name, s.DestPath)
	}
	return nil
}

// isRemote reports whether a source of ADD is fetched: a URL, or a Git repository.
func isRemote(source string) bool {
	scheme, _, ok := strings.Cut(source, "://")
	return ok && !strings.ContainsAny(scheme, "/.") || strings.HasPrefix(source, "git@")
}

func (f *File) supportedRun(c *instructions.RunCommand, at int) error {
	if n := instructions.GetNetwork(c); n == instructions.NetworkHost {
		return f.unsupported(at, "RUN --network=host is not supported: default and none are")
	}
	if len(c.CmdLine) == 0 {
		return f.invalid(at, "RUN has no command")
	}
	return nil
}
