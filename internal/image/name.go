package image

import (
	"regexp"
	"strings"

	"ramet.dev/ramet/api"
)

const (
	maxNameLen = 128
	// minPrefixLen counts the whole reference, "img_" included.
	minPrefixLen = 8

	defaultTag = ":latest"
)

var (
	namePattern     = regexp.MustCompile(`^[a-z0-9][a-z0-9._/-]*(:[A-Za-z0-9_][A-Za-z0-9._-]*)?$`)
	idPrefixPattern = regexp.MustCompile(`^img_[a-z2-7]{4,15}$`)
)

// ParseName returns the canonical form of an image's name, in which the tag
// "latest" is left out. No other function checks names. The error is
// CodeInvalid and names field.
func ParseName(field, s string) (string, error) {
	repo, _, _ := strings.Cut(s, ":")
	switch {
	case len(s) > maxNameLen, !namePattern.MatchString(s),
		strings.Contains(repo, "//"), strings.HasSuffix(repo, "/"),
		strings.Contains("/"+repo+"/", "/./"), strings.Contains("/"+repo+"/", "/../"):
		return "", api.Invalid(field, "%q is not an image name: at most %d of a-z, 0-9, '.', '_', '-' and '/', beginning with a letter or digit, and an optional ':tag'", s, maxNameLen)
	case strings.HasPrefix(s, string(api.KindImage)+"_"):
		return "", api.Invalid(field, "%q is not an image name: names do not look like ids", s)
	}
	return strings.TrimSuffix(s, defaultTag), nil
}
