package names

import (
	"path"
	"strings"

	"ramet.dev/ramet/api"
)

// Selected reports whether a glob, see api.ListRequest, selects a relative
// path. No glob selects all.
func Selected(glob, rel string) bool {
	switch {
	case glob == "":
		return true
	case !strings.Contains(glob, "/"):
		ok, _ := path.Match(glob, path.Base(rel)) // its form was checked
		return ok
	}
	return matchParts(strings.Split(strings.TrimPrefix(glob, "/"), "/"), strings.Split(rel, "/"))
}

// matchParts matches part by part; ** is any number of parts. It keeps which
// parts of the glob may come next, so that its time is the product of both
// lengths, whatever the glob.
func matchParts(glob, parts []string) bool {
	may := make([]bool, len(glob)+1)
	may[0] = true
	spread := func() {
		for i, g := range glob {
			if may[i] && g == "**" {
				may[i+1] = true
			}
		}
	}
	spread()
	for _, p := range parts {
		next := make([]bool, len(glob)+1)
		for i, g := range glob {
			if !may[i] {
				continue
			}
			if g == "**" {
				next[i] = true
			} else if ok, _ := path.Match(g, p); ok {
				next[i+1] = true
			}
		}
		may = next
		spread()
	}
	return may[len(glob)]
}

// CheckGlob refuses globs that path.Match cannot read.
func CheckGlob(glob string) error {
	for part := range strings.SplitSeq(glob, "/") {
		if _, err := path.Match(part, ""); err != nil {
			return api.Invalid("glob", "%q is not a pattern: a '[' is not closed, or a '\\' ends it", glob)
		}
	}
	return nil
}
