package api

import (
	"slices"
	"strings"
)

// MaxTimeoutMS is the longest timeout that a request may have: ten years, in which no
// clock overflows.
const MaxTimeoutMS = 10 * 365 * 24 * 3600 * 1000

// envName is the form of the names that shells know.
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

// CommandArgv returns the program and arguments of a request that has either argv or a
// command line for the shell.
func CommandArgv(argv []string, shell string) ([]string, error) {
	switch {
	case len(argv) > 0 && shell != "":
		return nil, Invalid("argv", "a command has argv or shell, not both")
	case strings.ContainsRune(shell, 0):
		return nil, Invalid("shell", "the command contains a NUL byte")
	case shell != "":
		return []string{"/bin/sh", "-c", shell}, nil
	case len(argv) == 0 || argv[0] == "":
		return nil, Invalid("argv", "there is no command")
	case slices.ContainsFunc(argv, func(a string) bool { return strings.ContainsRune(a, 0) }):
		return nil, Invalid("argv", "an argument contains a NUL byte")
	}
	return argv, nil
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
