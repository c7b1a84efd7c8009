package route

import (
	"regexp"
	"strings"

	"ramet.dev/ramet/api"
)

// maxImageRef bounds a reference. It is not part of the pattern, because counted
// repetitions are slow to compile and every process of ours does that.
const maxImageRef = 255

// imageRefPattern is wide enough for an id, a name and a reference in a
// registry: host:port/repository:tag@digest.
var imageRefPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)

func ValidImageRef(field, ref string) error {
	if len(ref) > maxImageRef || !imageRefPattern.MatchString(ref) || strings.Contains(ref, "..") || strings.Contains(ref, "//") || strings.HasSuffix(ref, "/") {
		return api.Invalid(field, "%q is not the id or name of an image: 1 to 255 of letters, digits and '._/:@-', beginning with a letter or digit", ref)
	}
	return nil
}

func ValidSandbox(ref string) error { return api.ValidRef(api.KindSandbox, "id", ref) }

func ValidSnapshot(field, ref string) error {
	return api.ValidRef(api.KindSnapshot, field, ref)
}

// ValidSide checks a reference to a sandbox or a snapshot.
func ValidSide(field, ref string) error {
	if api.IsID(api.KindSnapshot, ref) {
		return nil
	}
	return api.ValidRef(api.KindSandbox, field, ref)
}

// ValidOptionalSide is validSide for a reference that may be absent.
func ValidOptionalSide(field, ref string) error {
	if ref == "" {
		return nil
	}
	return ValidSide(field, ref)
}

// ValidNames checks names that are optional.
func ValidNames(field string, names ...string) error {
	for _, name := range names {
		if name == "" {
			continue
		}
		if err := api.ValidName(field, name); err != nil {
			return err
		}
	}
	return nil
}
