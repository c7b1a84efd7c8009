package interpreter

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
)

// restoreTimeout bounds how long the variables of a cell take to be removed.
const restoreTimeout = 10 * time.Second

// between runs a cell between two pieces of code in its context, which set variables of its environment and restore
// them. Without variables the pieces are empty, and only the cell runs.
func (i *Interpreter) between(ctx context.Context, sandbox string, cell api.RunCodeRequest, lang, set, restore string, run func() error) error {
	if set == "" {
		return run()
	}
	if err := i.quietly(ctx, sandbox, cell, lang, set); err != nil {
		return err
	}
	defer func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
		defer cancel()
		_ = i.quietly(own, sandbox, cell, lang, restore) // the sandbox may have ended
	}()
	return run()
}

// quietly runs code in the context of a cell, and does not count it. Bash counts all cells.
func (i *Interpreter) quietly(ctx context.Context, sandbox string, cell api.RunCodeRequest, lang, code string) error {
	res, err := i.svc.RunCode(ctx, sandbox, api.RunCodeRequest{Context: cell.Context, Language: cell.Language, Code: code, Silent: lang != "bash"}, api.RunIO{})
	if err != nil {
		return err
	}
	if res.Error != nil {
		return api.Errorf(api.CodeInternal, "%s: %s", res.Error.Name, res.Error.Value)
	}
	return nil
}

var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variables returns code that sets variables of the environment, and code that gives them the values that they had.
func variables(lang string, env map[string]string) (set, restore string, err error) {
	text, err := json.Marshal(env)
	if err != nil {
		return "", "", err
	}
	switch lang {
	case "python":
		set = "(lambda os, env: (setattr(os, '_e2b_env', {k: os.environ.get(k) for k in env}), os.environ.update(env)))(__import__('os'), __import__('json').loads(" + quotePython(string(text)) + ")) and None"
		restore = "[os.environ.pop(k, None) if v is None else os.environ.__setitem__(k, v) for os in [__import__('os')] for k, v in os.__dict__.pop('_e2b_env', {}).items()] and None"
		return set, restore, nil
	case "node":
		set = "{ const env = " + string(text) + "; process._e2bEnv = Object.keys(env).map(k => [k, process.env[k]]); Object.assign(process.env, env); }"
		restore = "{ for (const [k, v] of process._e2bEnv ?? []) if (v === undefined) delete process.env[k]; else process.env[k] = v; delete process._e2bEnv; }"
		return set, restore, nil
	case "bash":
		var sets, restores strings.Builder
		for _, k := range slices.Sorted(maps.Keys(env)) {
			if !shellName.MatchString(k) {
				return "", "", api.Invalid("env_vars", "%q is not a name of a variable in bash", k)
			}
			old := "__e2b_" + k
			sets.WriteString("unset " + old + "; [ -z \"${" + k + "+x}\" ] || " + old + "=$" + k + "; export " + k + "=" + quoteShell(env[k]) + "\n")
			restores.WriteString("if [ -n \"${" + old + "+x}\" ]; then export " + k + "=$" + old + "; unset " + old + "; else unset " + k + "; fi\n")
		}
		return sets.String(), restores.String(), nil
	}
	return "", "", api.Errorf(api.CodeUnsupported, "env_vars of a cell are for python, javascript and bash")
}

func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// quotePython returns a literal of Python for a text in JSON.
func quotePython(s string) string {
	b, _ := json.Marshal(s) // a string: it cannot fail
	return string(b)
}
