package httpapi

import (
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"ramet.dev/ramet/internal/sandbox"
)

// ConditionInput says which version of a file is to be changed. It is exported for
// the same reason as IDInput.
type ConditionInput struct {
	IfMatch           string `header:"If-Match" doc:"ETags of which the file must have one, or * for any file; as in RFC 9110"`
	IfUnmodifiedSince string `header:"If-Unmodified-Since" doc:"refused without If-Match: a file may change several times in the second that it says"`
	lines             []string
}

// Resolve implements huma.Resolver: the framework takes the first line of a header, and
// an empty one for none.
func (in *ConditionInput) Resolve(ctx huma.Context) []error {
	r, _ := humago.Unwrap(ctx)
	in.lines = r.Header.Values("If-Match")
	return nil
}

// tags returns the ETags of which the file must have one, none if there is no
// condition.
func (in *ConditionInput) tags() ([]string, error) {
	if in.lines != nil {
		return parseETags(strings.Join(in.lines, ", "))
	}
	if in.IfUnmodifiedSince != "" {
		return nil, sandbox.Invalid("If-Unmodified-Since", "use If-Match with the file's ETag: a file may change several times in a second")
	}
	return nil, nil
}

// quoteETag makes a header's value of what identifies a version of a file.
func quoteETag(tag string) string { return `"` + tag + `"` }

// weak begins validators that say of two versions no more than that they are alike.
const weak = "W/"

// maxETags bounds the list of a condition: they travel in one message.
const maxETags = 100

// parseETags reads the value of If-Match. Weak validators, which no file has in a
// comparison of versions, are kept as they are.
func parseETags(header string) ([]string, error) {
	rest := strings.Trim(header, " \t")
	if rest == sandbox.AnyETag {
		return []string{sandbox.AnyETag}, nil
	}
	var tags []string
	for {
		rest = strings.TrimLeft(rest, " \t,") // empty elements mean nothing
		if rest == "" && tags != nil {
			return tags, nil
		}
		quoted, isWeak := strings.CutPrefix(rest, weak)
		tag, after, closed := cutETag(quoted)
		after = strings.TrimLeft(after, " \t")
		if !closed || after != "" && after[0] != ',' {
			return nil, sandbox.Invalid("If-Match", "%q is neither * nor a list of ETags in quotes", header)
		}
		if isWeak || tag == sandbox.AnyETag { // in quotes it is no more than a tag
			tag = weak + tag
		}
		if tags, rest = append(tags, tag), after; len(tags) > maxETags {
			return nil, sandbox.Invalid("If-Match", "it has more than %d ETags", maxETags)
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
