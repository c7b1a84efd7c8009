package api

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// MaxTimeoutMS is the longest timeout that a request may have: ten years, in which no
// clock overflows.
const MaxTimeoutMS = 10 * 365 * 24 * 3600 * 1000

// envName is the form of names that shells accept.
var envName = pattern(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ValidEnv returns a CodeInvalid error that names field unless env can be the
// environment of a command. Names have the form that shells can set and read; values
// are any text without a NUL byte.
func ValidEnv(field string, env map[string]string) error {
	for name, value := range env {
		if !envName().MatchString(name) {
			return Invalid(field, "%q is not a variable name: it has letters, digits and '_', and does not begin with a digit", name)
		}
		if strings.ContainsRune(value, 0) {
			return Invalid(field, "the value of %s contains a NUL byte", name)
		}
	}
	return nil
}

// ValidTimeout returns a CodeInvalid error that names field unless ms is a timeout in
// milliseconds. 0 is none.
func ValidTimeout(field string, ms int64) error {
	if ms < 0 || ms > MaxTimeoutMS {
		return Invalid(field, "%d is not a time from 0 to %d ms", ms, int64(MaxTimeoutMS))
	}
	return nil
}

// CommandArgv returns the program and arguments of a request that has exactly one of argv
// and a command line for the shell.
func CommandArgv(argv []string, shell string) ([]string, error) {
	switch {
	case (len(argv) == 0) == (shell == ""):
		return nil, Invalid("argv", "exactly one of argv and shell must be given")
	case strings.ContainsRune(shell, 0):
		return nil, Invalid("shell", "the command contains a NUL byte")
	case shell != "":
		return []string{"/bin/sh", "-c", shell}, nil
	case argv[0] == "":
		return nil, Invalid("argv", "the first argument names the program and must not be empty")
	case slices.ContainsFunc(argv, func(a string) bool { return strings.ContainsRune(a, 0) }):
		return nil, Invalid("argv", "an argument contains a NUL byte")
	}
	return argv, nil
}

// ValidDir returns a CodeInvalid error that names field unless dir can be the directory
// that a command starts in. Empty is the default of the sandbox.
func ValidDir(field, dir string) error {
	switch {
	case dir != "" && !path.IsAbs(dir):
		return Invalid(field, "%q is not an absolute path", dir)
	case strings.ContainsRune(dir, 0):
		return Invalid(field, "the path contains a NUL byte")
	}
	return nil
}

// validCommand checks the fields that all requests for a command have.
func validCommand(argv []string, shell string, env map[string]string, cwd, user string, timeoutMS int64) error {
	if _, err := CommandArgv(argv, shell); err != nil {
		return err
	}
	if strings.ContainsRune(user, 0) {
		return Invalid("user", "the name contains a NUL byte")
	}
	return cmp.Or(ValidDir("cwd", cwd), ValidTimeout("timeout_ms", timeoutMS), ValidEnv("env", env))
}

// Valid returns a CodeInvalid error unless r can be carried out.
func (r *ExecRequest) Valid() error {
	if err := validCommand(r.Argv, r.Shell, r.Env, r.Cwd, r.User, r.TimeoutMS); err != nil {
		return err
	}
	switch {
	case r.From != nil && r.Key == "":
		return Invalid("from", "a command is come back to by its key, which is absent")
	case r.Key != "" && r.Stdin != "":
		return Invalid("key", "a command with standard input cannot be come back to")
	}
	return nil
}

// Valid returns a CodeInvalid error unless r can be carried out.
func (r *StartRequest) Valid() error {
	if err := validCommand(r.Argv, r.Shell, r.Env, r.Cwd, r.User, r.TimeoutMS); err != nil {
		return err
	}
	switch t := r.Terminal; {
	case t != nil && (t.Cols == 0 || t.Rows == 0):
		return Invalid("terminal", "a terminal has from 1 to 65535 columns and rows")
	case t != nil && r.Stdin:
		return Invalid("stdin", "a terminal is the standard input already")
	}
	return ValidTimeout("idle_timeout_ms", r.IdleTimeoutMS)
}

// Valid returns a CodeInvalid error unless r can be carried out.
func (r *BisectRequest) Valid() error {
	return validCommand(r.Argv, r.Shell, r.Env, r.Cwd, r.User, r.TimeoutMS)
}

// CommandText returns a command as a user would type it.
func CommandText(argv []string, shell string) string {
	if shell != "" {
		return shell
	}
	words := make([]string, len(argv))
	for i, w := range argv {
		if words[i] = w; w == "" || strings.ContainsAny(w, " \t\n'\"\\$`|&;<>()*?[]#~") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
