package rest

import (
	"path"
	"regexp"
	"strings"

	"ramet.dev/ramet/api"
)

// maxImageRef bounds a reference. It is not part of the pattern, because counted
// repetitions are slow to compile and every process of ours does that.
const maxImageRef = 255

// imageRefPattern is wide enough for an id, a name and a reference in a
// registry: host:port/repository:tag@digest.
var imageRefPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)

func validImageRef(field, ref string) error {
	if len(ref) > maxImageRef || !imageRefPattern.MatchString(ref) || strings.Contains(ref, "..") || strings.Contains(ref, "//") || strings.HasSuffix(ref, "/") {
		return api.Invalid(field, "%q is not the id or name of an image: 1 to 255 of letters, digits and '._/:@-', beginning with a letter or digit", ref)
	}
	return nil
}

func validSandbox(ref string) error { return api.ValidRef(api.KindSandbox, "id", ref) }

func validSnapshot(field, ref string) error {
	return api.ValidRef(api.KindSnapshot, field, ref)
}

// validSide checks a reference to a sandbox or a snapshot.
func validSide(field, ref string) error {
	if api.IsID(api.KindSnapshot, ref) {
		return nil
	}
	return api.ValidRef(api.KindSandbox, field, ref)
}

// validOptionalSide is validSide for a reference that may be absent.
func validOptionalSide(field, ref string) error {
	if ref == "" {
		return nil
	}
	return validSide(field, ref)
}

// validNames checks names that are optional.
func validNames(field string, names ...string) error {
	for _, name := range names {
		if name == "" {
			continue
		}
		if err := api.ValidName(field, name); err != nil {
			return err
		}
	}
	return nil
}

// validEnv checks what execve cannot carry.
func validEnv(env map[string]string) error {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
			return api.Invalid("env", "%q is not a variable: a name has no '=', and neither name nor value a NUL byte", k)
		}
	}
	return nil
}

func validExec(req api.ExecRequest) error {
	if (len(req.Argv) == 0) == (req.Shell == "") {
		return api.Invalid("argv", "exactly one of argv and shell must be given")
	}
	for _, arg := range append(req.Argv, req.Shell, req.Cwd, req.User) {
		if strings.Contains(arg, "\x00") {
			return api.Invalid("argv", "a command, its directory and user must not have a NUL byte")
		}
	}
	if len(req.Argv) > 0 && req.Argv[0] == "" {
		return api.Invalid("argv", "the first argument names the program and must not be empty")
	}
	if req.Cwd != "" && !path.IsAbs(req.Cwd) {
		return api.Invalid("cwd", "%q is not an absolute path", req.Cwd)
	}
	if req.TimeoutMS < 0 {
		return api.Invalid("timeout_ms", "%d is negative", req.TimeoutMS)
	}
	if req.From != nil && req.Key == "" {
		return api.Invalid("from", "a command is come back to by its key, which is absent")
	}
	if req.Key != "" && req.Stdin != "" {
		return api.Invalid("key", "a command with standard input cannot be come back to")
	}
	if len(req.Stdin) > maxStdin {
		return api.Invalid("stdin", "%d bytes are more than %d: stream them over a WebSocket", len(req.Stdin), maxStdin)
	}
	return validEnv(req.Env)
}

func validImageRequest(req api.ImageRequest) error {
	if err := validImageRef("name", req.Name); err != nil {
		return err
	}
	sources := 0
	for _, given := range []bool{req.Build != nil, req.Path != "", req.Ref != ""} {
		if given {
			sources++
		}
	}
	switch {
	case sources != 1:
		return api.Invalid("build", "exactly one of build, path and ref must be given")
	case req.Path != "" && (!path.IsAbs(req.Path) || strings.Contains(req.Path, "\x00")):
		return api.Invalid("path", "%q is not an absolute path", req.Path)
	case req.Ref != "":
		return validImageRef("ref", req.Ref)
	}
	return nil
}

// parseMetadata reads the k=v pairs of a filter.
func parseMetadata(pairs []string) (map[string]string, error) {
	var m map[string]string
	for _, pair := range pairs {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, api.Invalid("metadata", "%q is not key=value", pair)
		}
		if m == nil {
			m = map[string]string{}
		}
		m[k] = v
	}
	return m, nil
}
