package explore

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// prelude returns code that gives an interpreter the environment and the args of an attempt. It
// runs before the code, in a cell of its own, so that lines of the code keep their numbers.
//
// The names that it binds are ramet_attempt in Python and Node. Bash has the args as $1 and so on.
func prelude(language string, about attemptInfo) (string, error) {
	doc, err := quoted(about)
	if err != nil {
		return "", err
	}
	env, err := quoted(about.Env)
	if err != nil {
		return "", err
	}
	switch language {
	case "node":
		return fmt.Sprintf("var ramet_attempt = JSON.parse(%s); Object.assign(process.env, JSON.parse(%s)); undefined", doc, env), nil
	case "bash":
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(about.Env)) {
			fmt.Fprintf(&b, "export %s=%s\n", name, shellQuoted(about.Env[name]))
		}
		b.WriteString("set --")
		for _, a := range about.Args {
			b.WriteString(" " + shellQuoted(a))
		}
		return b.String() + "\n", nil
	}
	return fmt.Sprintf("ramet_attempt = __import__('json').loads(%s)\n__import__('os').environ.update(__import__('json').loads(%s))\n", doc, env), nil
}

// attemptInfo is what the code of an attempt is told about it.
type attemptInfo struct {
	Index  int               `json:"index"`
	Round  int               `json:"round"`
	Budget float64           `json:"budget"`
	Args   []string          `json:"args"`
	Env    map[string]string `json:"env"`
}

// quoted returns a literal of a text that Python and JavaScript both read: v as JSON.
func quoted(v any) (string, error) {
	doc, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode an attempt: %w", err)
	}
	literal, err := json.Marshal(string(doc))
	return string(literal), err
}

func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
