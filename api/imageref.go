package api

import (
	"path"
	"strings"
)

// maxImageRef bounds a reference. It is not part of the pattern, because counted
// repetitions are slow to compile.
const maxImageRef = 255

// imageRefPattern is wide enough for an id, a name and a reference in a registry:
// host:port/repository:tag@digest.
var imageRefPattern = pattern(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)

// ValidImageRef returns a CodeInvalid error that names field unless ref has the form of an
// image's id, name or reference in a registry.
func ValidImageRef(field, ref string) error {
	if len(ref) > maxImageRef || !imageRefPattern().MatchString(ref) || strings.Contains(ref, "..") || strings.Contains(ref, "//") || strings.HasSuffix(ref, "/") {
		return Invalid(field, "%q is not the id or name of an image: 1 to 255 of letters, digits and '._/:@-', beginning with a letter or digit", ref)
	}
	return nil
}

// Valid returns a CodeInvalid error unless r has exactly one source, and a name, which only an
// image from a registry gets by itself.
func (r *ImageRequest) Valid() error {
	if r.Name != "" || r.Ref == "" {
		if err := ValidImageRef("name", r.Name); err != nil {
			return err
		}
	}
	sources := 0
	for _, given := range []bool{r.Build != nil, r.Path != "", r.Ref != ""} {
		if given {
			sources++
		}
	}
	switch {
	case sources != 1:
		return Invalid("build", "exactly one of build, path and ref must be given")
	case r.Path != "" && (!path.IsAbs(r.Path) || strings.ContainsRune(r.Path, 0)):
		return Invalid("path", "%q is not an absolute path", r.Path)
	case r.Select != "" && r.Path == "":
		return Invalid("select", "only what is imported from a path can hold several images")
	case r.Ref != "":
		return ValidImageRef("ref", r.Ref)
	}
	return nil
}
