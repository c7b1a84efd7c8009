package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// anything stands for any text in an expected line, or for any lines.
const anything = "…"

var masks = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "DIGEST"},
	{regexp.MustCompile(`\bsha256:[0-9a-f]{12}\b`), "DIGEST"},
	{regexp.MustCompile(`\b\d{16}\b`), "NUMBER"},
	{regexp.MustCompile(`(_ms":) ?[0-9.]+`), "${1}N"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(µs|ms|s|m|h|d|min)\b`), "DURATION"},
	{regexp.MustCompile(`\b\d+(\.\d+)? (KiB|MiB|GiB)\b`), "SIZE"},
	{regexp.MustCompile(`\b(ready|uploading) +(SIZE|-|0 B) `), "READY SIZE "},
	{regexp.MustCompile(`\b[SRD] \((sleeping|running|disk sleep)\)`), "STATE"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

var identifier = regexp.MustCompile(`\b(sbx|snap|img|tok|xpl)[_-][a-z2-7]{16}\b`)

// masker makes two outputs comparable. It numbers identifiers in the order in which they come, so
// that one that is meant to be an earlier one has to be that.
type masker map[string]string

func (m masker) mask(line string) string {
	line = identifier.ReplaceAllStringFunc(line, func(id string) string {
		if m[id] == "" {
			kind, n := id[:3], 1 // by kinds, so that an id in what "…" stands for does not matter
			for _, other := range m {
				if strings.HasPrefix(other, kind) {
					n++
				}
			}
			m[id] = fmt.Sprintf("%s_%d", kind, n)
		}
		return m[id]
	})
	for _, mask := range masks {
		line = mask.what.ReplaceAllString(line, mask.by)
	}
	return strings.TrimRight(line, " ")
}

func (m masker) maskAll(lines []string) []string {
	masked := make([]string, len(lines))
	for i, line := range lines {
		masked[i] = m.mask(line)
	}
	return masked
}

// matches reports whether got is what want says. Both are masked.
func matches(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if want[0] == anything {
		for i := range len(got) + 1 {
			if matches(want[1:], got[i:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && lineMatches(want[0], got[0]) && matches(want[1:], got[1:])
}

func lineMatches(want, got string) bool {
	if !strings.Contains(want, anything) {
		return want == got
	}
	parts := strings.Split(want, anything)
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}
