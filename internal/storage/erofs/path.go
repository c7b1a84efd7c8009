package erofs

import "strings"

// MaxPathLen is the length limit of a path in bytes: with its terminating NUL it
// must fit in Linux's PATH_MAX.
const MaxPathLen = 4095

// CleanPath returns path in the form that the tree has: lexically cleaned, relative to the
// root, without leading or trailing slash; "" is the root itself. It is the only place where
// names of archive entries are checked. It drops leading slashes, as tar does; a path that
// leaves the root, has a NUL or is too long is an *EntryError.
func CleanPath(path string) (string, error) {
	names, err := splitPath(path)
	return strings.Join(names, "/"), err
}

func splitPath(path string) ([]string, error) {
	if len(path) > MaxPathLen {
		return nil, &EntryError{path[:64] + "…", "path is longer than 4095 bytes"}
	}
	if strings.IndexByte(path, 0) >= 0 {
		return nil, &EntryError{path, "path holds a NUL"}
	}
	names := make([]string, 0, strings.Count(path, "/")+1)
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case name == "" || name == ".":
		case name == "..":
			if len(names) == 0 {
				return nil, &EntryError{path, "path leaves the root"}
			}
			names = names[:len(names)-1]
		case len(name) > MaxNameLen:
			return nil, &EntryError{path, "file name is longer than 255 bytes"}
		default:
			names = append(names, name)
		}
	}
	return names, nil
}
