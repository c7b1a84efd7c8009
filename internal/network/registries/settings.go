package registries

import (
	"strings"
)

// setting is one key with its value, of a line such as "key = value".
type setting struct{ key, value string }

// settings reads lines of keys and values, as pip and npm have them: comments begin with # or ;,
// sections do not matter, and a line that begins with white space continues the value before it if
// folded is set. Keys are lower-case, with - for _.
func settings(text string, folded bool) []setting {
	var out []setting
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || trimmed[0] == '#' || trimmed[0] == ';' || trimmed[0] == '[':
			continue
		case folded && (line[0] == ' ' || line[0] == '\t'):
			if len(out) > 0 {
				out[len(out)-1].value += "\n" + trimmed
			}
			continue
		}
		end := strings.IndexByte(trimmed, '=')
		if colon := strings.IndexByte(trimmed, ':'); folded && colon >= 0 && (end < 0 || colon < end) {
			end = colon
		}
		if end <= 0 {
			continue
		}
		key := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(trimmed[:end])), "_", "-")
		out = append(out, setting{key, unquote(strings.TrimSpace(trimmed[end+1:]))})
	}
	return out
}

// unquote takes one pair of quotes away.
func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
