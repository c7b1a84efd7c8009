package dpkg

import (
	"path"
	"strings"

	"ramet.dev/ramet/internal/image/debian/archive"
	"ramet.dev/ramet/internal/image/debian/fault"
)

const (
	maxEntries  = 4_000_000
	maxPathLen  = 4000
	maxLinkHops = 40
)

type nodeKind uint8

const (
	kindDir nodeKind = iota + 1
	kindFile
	kindLink
)

// node is one entry already written to the image.
type node struct {
	kind   nodeKind
	owner  *archive.Package // nil: of the base layout or generated
	target string           // of a symbolic link
}

// tree remembers every path of the image, so that a later entry is seen
// through the symbolic links an unpacking dpkg would follow. That is what makes
// the merged /usr work (bin is a link to usr/bin), and no entry of the image
// lies below a link. Paths are clean and relative.
type tree map[string]node

// cleanPath turns the name of an archive member into a relative path; "" is the
// root. Names that lead out of the root are refused rather than repaired.
func cleanPath(what, name string) (string, error) {
	if len(name) > maxPathLen || strings.IndexByte(name, 0) >= 0 || name == "" {
		return "", fault.Malformed(what, "bad path %.200q", name)
	}
	for _, part := range strings.Split(name, "/") {
		if part == ".." {
			return "", fault.Malformed(what, "path %.200q leaves the root", name)
		}
	}
	p := strings.TrimPrefix(path.Clean("/"+name), "/")
	// dpkg's lists hold one path per line.
	if strings.ContainsAny(p, "\n") {
		return "", fault.Malformed(what, "bad path %.200q", name)
	}
	return p, nil
}

// resolveDir follows symbolic links in p as the path of a directory.
func (t tree) resolveDir(what, p string) (string, error) {
	done, todo := "", strings.Split(p, "/")
	for hops := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..": // can come from a link only; the root is its own parent
			if done = path.Dir(done); done == "." {
				done = ""
			}
			continue
		}
		next := path.Join(done, part)
		n, ok := t[next]
		switch {
		case ok && n.kind == kindFile:
			return "", fault.Malformed(what, "path %.200q goes through the file %.200q", p, next)
		case ok && n.kind == kindLink:
			if hops++; hops > maxLinkHops {
				return "", fault.Malformed(what, "path %.200q has too many symbolic links", p)
			}
			todo = append(strings.Split(n.target, "/"), todo...)
			if strings.HasPrefix(n.target, "/") {
				done = ""
			}
		default:
			done = next
		}
	}
	if len(done) > maxPathLen {
		return "", fault.Malformed(what, "path %.200q is too long", p)
	}
	return done, nil
}

// resolve follows symbolic links in all but the last part of p.
func (t tree) resolve(what, p string) (string, error) {
	dir, base := path.Split(p)
	dir, err := t.resolveDir(what, dir)
	return path.Join(dir, base), err
}

// DefaultWithout are the trees a sandbox has no use for. They are about a
// third of a small Debian.
var DefaultWithout = []string{
	"/usr/share/doc", "/usr/share/info", "/usr/share/lintian",
	"/usr/share/locale", "/usr/share/man", "/var/cache",
}

// excluder has the path prefixes of the files that are left out.
type excluder []string

// keepDirs are the trees whose directories stay although their files go:
// maintainer scripts write to places such as /var/cache/debconf, and
// update-alternatives puts links into /usr/share/man/man1.
var keepDirs = []string{"/var", "/usr/share/man"}

// keepFiles are needed in spite of their directory.
var keepFiles = map[string]bool{"/usr/share/locale/locale.alias": true}

// drops reports whether the entry at the clean relative path p is left out.
func (e excluder) drops(p string, dir bool) bool {
	abs := "/" + p
	if keepFiles[abs] {
		return false
	}
	for _, prefix := range e {
		if strings.HasPrefix(abs, prefix+"/") || abs == prefix && !dir {
			return !dir || !under(abs, keepDirs)
		}
	}
	return false
}

func under(abs string, prefixes []string) bool {
	for _, p := range prefixes {
		if abs == p || strings.HasPrefix(abs, p+"/") {
			return true
		}
	}
	return false
}
