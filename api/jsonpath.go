package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// JSONPath is where a value stands in a document: names of members, as strings, and places in
// lists, as ints. A negative place counts from the end.
type JSONPath []any

// maxPathSteps bounds how deep a path leads.
const maxPathSteps = 64

// ParseJSONPath reads a path such as metrics.loss, results[-1].score or $["a b"][0]. The empty
// path is the document as a whole.
func ParseJSONPath(text string) (JSONPath, error) {
	path := JSONPath{}
	rest := strings.TrimPrefix(text, "$")
	first := rest == text // a path without $ begins with a name
	for rest != "" {
		if len(path) == maxPathSteps {
			return nil, fmt.Errorf("%.100q leads more than %d steps deep", text, maxPathSteps)
		}
		if rest[0] == '[' {
			step, after, err := parseBracket(rest)
			if err != nil {
				return nil, fmt.Errorf("%.100q is no path: %w", text, err)
			}
			path, rest, first = append(path, step), after, false
			continue
		}
		name, dotted := strings.CutPrefix(rest, ".")
		if !dotted && !first {
			return nil, fmt.Errorf("%.100q is no path: %.20q does not begin with a dot or a bracket", text, rest)
		}
		end := strings.IndexAny(name, ".[")
		if end < 0 {
			end = len(name)
		}
		if end == 0 {
			return nil, fmt.Errorf("%.100q is no path: a name is empty", text)
		}
		path, rest, first = append(path, name[:end]), name[end:], false
	}
	return path, nil
}

// parseBracket reads a step such as [0] or ["a b"] at the beginning of text.
func parseBracket(text string) (step any, rest string, err error) {
	if strings.HasPrefix(text, `["`) {
		dec := json.NewDecoder(strings.NewReader(text[1:]))
		var name string
		if err := dec.Decode(&name); err != nil {
			return nil, "", fmt.Errorf("%.20q is no name in quotes", text)
		}
		rest, ok := strings.CutPrefix(text[1+dec.InputOffset():], "]")
		if !ok {
			return nil, "", fmt.Errorf("a bracket is not closed")
		}
		return name, rest, nil
	}
	inner, rest, ok := strings.Cut(text[1:], "]")
	if !ok {
		return nil, "", fmt.Errorf("a bracket is not closed")
	}
	n, err := strconv.Atoi(inner)
	if err != nil {
		return nil, "", fmt.Errorf("%.20q is neither a number nor a name in quotes", inner)
	}
	return n, rest, nil
}

// In returns the value at the path in a document that was decoded by encoding/json.
func (p JSONPath) In(doc any) (any, error) {
	for _, step := range p {
		switch step := step.(type) {
		case string:
			object, ok := doc.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("%q is looked for in a value that is no object", step)
			}
			if doc, ok = object[step]; !ok {
				return nil, fmt.Errorf("there is no member %q", step)
			}
		case int:
			list, ok := doc.([]any)
			if !ok {
				return nil, fmt.Errorf("place %d is looked for in a value that is no list", step)
			}
			i := step
			if i < 0 {
				i += len(list)
			}
			if i < 0 || i >= len(list) {
				return nil, fmt.Errorf("there is no place %d in a list of %d", step, len(list))
			}
			doc = list[i]
		}
	}
	return doc, nil
}
