package explore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/network/document"
)

// readPlan reads a plan from a file, or standard input, as a value of JSON. Names of files in it are
// those of this machine, relative to the file of the plan.
func readPlan(name string, in io.Reader) (map[string]any, error) {
	dir := "."
	if name != console.StdStream {
		f, err := os.Open(name)
		if err != nil {
			return nil, api.Invalid("file", "%v", err)
		}
		defer f.Close()
		in, dir = f, filepath.Dir(name)
	}
	text, err := io.ReadAll(io.LimitReader(in, document.MaxPlan+1))
	if err != nil {
		return nil, api.Invalid("file", "%v", err)
	}
	value, err := document.ParsePlan(text)
	if err != nil {
		return nil, api.Invalid("file", "%s: %s", name, api.AsError(err).Detail)
	}
	if raw, ok := value.(json.RawMessage); ok {
		if err := json.Unmarshal(raw, &value); err != nil {
			return nil, api.Invalid("file", "%s: %v", name, err)
		}
	}
	plan, ok := value.(map[string]any)
	if !ok {
		return nil, api.Invalid("file", "%s: a plan has members, such as run and width", name)
	}
	return plan, readFiles(plan, dir)
}

// readFiles puts the contents of files in the place of their names, wherever a plan has a list of
// files.
func readFiles(value any, dir string) error {
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			if err := readFiles(v, dir); err != nil {
				return err
			}
		}
	case map[string]any:
		files, _ := value["files"].([]any)
		for _, f := range files {
			file, _ := f.(map[string]any)
			from, ok := file["from"].(string)
			if !ok {
				continue
			}
			if !filepath.IsAbs(from) {
				from = filepath.Join(dir, from)
			}
			text, err := os.ReadFile(from)
			if err != nil {
				return api.Invalid("file", "%v", err)
			}
			delete(file, "from")
			if utf8.Valid(text) {
				file["text"] = string(text)
			} else {
				file["data"] = text
			}
		}
		for _, v := range value {
			if err := readFiles(v, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// set changes the member of a plan that an option such as search.rounds=3 names.
func set(plan map[string]any, option string) error {
	name, text, ok := strings.Cut(option, "=")
	if !ok || name == "" {
		return api.Invalid("set", "%q is not MEMBER=VALUE, such as search.rounds=3", option)
	}
	var value any = text
	if parsed, err := document.ParsePlan([]byte(text)); err == nil && parsed != nil {
		value = parsed
	}
	at := plan
	for rest := name; ; {
		member, deeper, more := strings.Cut(rest, ".")
		if !more {
			at[member] = value
			return nil
		}
		next, ok := at[member].(map[string]any)
		if !ok {
			if at[member] != nil {
				return api.Invalid("set", "%s: %s has no members", name, member)
			}
			next = map[string]any{}
			at[member] = next
		}
		at, rest = next, deeper
	}
}

// decode reads a plan that is a value of JSON.
func decode(plan map[string]any) (p api.ExplorePlan, err error) {
	textsOfEnv(plan)
	text, err := json.Marshal(plan)
	if err != nil {
		return p, fmt.Errorf("encode plan: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, api.Invalid("plan", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return p, nil
}

// textsOfEnv makes texts of the numbers and truth values in environments, as compose files have them.
func textsOfEnv(value any) {
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			textsOfEnv(v)
		}
	case map[string]any:
		for name, v := range value {
			env, ok := v.(map[string]any)
			if name != "env" || !ok {
				textsOfEnv(v)
				continue
			}
			for k, v := range env {
				switch v.(type) {
				case bool, int, int64, uint64, float64, json.Number:
					env[k] = fmt.Sprint(v)
				}
			}
		}
	}
}

// vary returns a variant for each combination of the values of variables.
func vary(options []string) ([]api.ExploreVariant, error) {
	variants := []api.ExploreVariant{{}}
	for _, o := range options {
		name, list, ok := strings.Cut(o, "=")
		if !ok || name == "" || list == "" {
			return nil, api.Invalid("vary", "%q is not NAME=VALUE,VALUE…, such as LR=0.1,0.01", o)
		}
		var more []api.ExploreVariant
		for _, v := range variants {
			for _, value := range strings.Split(list, ",") {
				env := map[string]string{name: value}
				for k, had := range v.Env {
					env[k] = had
				}
				more = append(more, api.ExploreVariant{Env: env})
				if len(more) > api.MaxChildren {
					return nil, api.Invalid("vary", "there are more than %d combinations", api.MaxChildren)
				}
			}
		}
		variants = more
	}
	return variants, nil
}

// scoreOf reads an option such as exit_code, regexp=PATTERN, json=PATH or command=COMMAND.
func scoreOf(option string) (api.ExploreScore, error) {
	by, value, given := strings.Cut(option, "=")
	s := api.ExploreScore{By: api.ExploreBy(by)}
	switch {
	case by == "command" && value != "":
		return api.ExploreScore{By: api.ScoreNumber, Command: &api.ExploreRun{Shell: value}}, nil
	case by == string(api.ScoreRegexp):
		s.Pattern = value
	case by == string(api.ScoreJSON):
		s.Path = value
	case given || !slices.Contains([]api.ExploreBy{api.ScoreExitCode, api.ScoreNumber, api.ScoreValue, api.ScoreDuration}, s.By):
		return s, api.Invalid("score", "%q is not exit_code, number, value, duration, regexp=PATTERN, json=PATH or command=COMMAND", option)
	}
	return s, nil
}
