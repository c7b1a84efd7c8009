package dataplane

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"ramet.dev/ramet/api"
)

// ConditionInput says which version of a file is to be changed. It is exported for
// the same reason as IDInput.
type ConditionInput struct {
	IfMatch           string `header:"If-Match" doc:"ETags of which the file must have one, or * for any file; as in RFC 9110"`
	IfUnmodifiedSince string `header:"If-Unmodified-Since" doc:"refused without If-Match: a file may change several times in a second"`
	lines, noneLines  []string
}

// Resolve implements huma.Resolver. The framework takes only the first line of a header, and
// takes an empty line for an absent header.
func (in *ConditionInput) Resolve(ctx huma.Context) []error {
	r, _ := humago.Unwrap(ctx)
	in.lines, in.noneLines = r.Header.Values("If-Match"), r.Header.Values("If-None-Match")
	return nil
}

// tags returns the ETags of which the file must have one, or nothing without a condition.
func (in *ConditionInput) tags() ([]string, error) {
	if in.lines != nil {
		tags, err := parseETags("If-Match", strings.Join(in.lines, ", "))
		for i, t := range tags {
			if t.weak {
				tags[i].value = weak + t.value // no file has such a tag
			}
		}
		return valuesOf(tags), err
	}
	if in.IfUnmodifiedSince != "" {
		return nil, api.Invalid("If-Unmodified-Since", "use If-Match with the file's ETag: a file may change several times in a second")
	}
	return nil, nil
}

// noneOf returns the ETags of which the file must have none, or whether it must not
// exist. Weak validators are compared, too, as RFC 9110 has it.
func (in *ConditionInput) noneOf() (tags []string, mustBeNew bool, err error) {
	if in.noneLines == nil {
		return nil, false, nil
	}
	parsed, err := parseETags("If-None-Match", strings.Join(in.noneLines, ", "))
	if len(parsed) == 1 && parsed[0].any {
		return nil, true, err
	}
	return valuesOf(parsed), false, err
}

func valuesOf(tags []eTag) []string {
	var values []string
	for _, t := range tags {
		values = append(values, t.value)
	}
	return values
}

// eTag is one of a list.
type eTag struct {
	value string
	weak  bool
	any   bool // it is *, whose value is AnyETag
}

// quoteETag makes a header's value of what identifies a version of a file.
func quoteETag(tag string) string { return `"` + tag + `"` }

// weak begins validators that only say that two versions are equivalent.
const weak = "W/"

// maxETags bounds the list of a condition: they travel in one message.
const maxETags = 100

// parseETags reads the value of the header called name.
func parseETags(name, header string) ([]eTag, error) {
	rest := strings.Trim(header, " \t")
	if rest == api.AnyETag {
		return []eTag{{value: api.AnyETag, any: true}}, nil
	}
	var tags []eTag
	for {
		rest = strings.TrimLeft(rest, " \t,") // empty elements mean nothing
		if rest == "" && tags != nil {
			return tags, nil
		}
		quoted, isWeak := strings.CutPrefix(rest, weak)
		tag, after, closed := cutETag(quoted)
		after = strings.TrimLeft(after, " \t")
		if !closed || after != "" && after[0] != ',' {
			return nil, api.Invalid(name, "%q is neither * nor a list of ETags in quotes", header)
		}
		// In quotes, * is an ordinary tag, which no file has.
		if tags, rest = append(tags, eTag{value: tag, weak: isWeak || tag == api.AnyETag}), after; len(tags) > maxETags {
			return nil, api.Invalid(name, "it has more than %d ETags", maxETags)
		}
	}
}

// cutETag takes a text in quotes from the beginning of s.
func cutETag(s string) (tag, after string, ok bool) {
	s, ok = strings.CutPrefix(s, `"`)
	if !ok {
		return "", "", false
	}
	tag, after, ok = strings.Cut(s, `"`)
	for i := range len(tag) {
		ok = ok && tag[i] > ' ' && tag[i] != 0x7f
	}
	return tag, after, ok
}
