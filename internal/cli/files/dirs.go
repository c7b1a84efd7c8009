package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// keptOpen is the number of the last directories that stay open, and the distance of those that
// stay open above them.
const keptOpen = 64

// dirs opens directories below a root one element at a time, so that paths may have any length. It
// keeps some of the directories on the way to the last one open, so that a walk of a deep tree does
// not begin at the root for each file.
type dirs struct {
	root  *os.Root
	names []string   // the path of the last directory
	open  []*os.Root // open[i] is the directory of names[i]; nil if it was closed
}

// errNotDir is the error of a path with an element that is not a directory. A symbolic link is not
// one.
type errNotDir struct{ path string }

func (e *errNotDir) Error() string { return e.path + " is no directory" }

// at returns the directory at a clean path below root. It stays open until the next call.
func (d *dirs) at(dir string) (*os.Root, error) {
	var names []string
	if dir != "." {
		names = strings.Split(dir, string(filepath.Separator))
	}
	same := 0
	for same < min(len(names), len(d.names)) && names[same] == d.names[same] {
		same++
	}
	d.closeFrom(same)
	from := same
	for from > 0 && d.open[from-1] == nil {
		from--
	}
	at := d.root
	if from > 0 {
		at = d.open[from-1]
	}
	for i := from; i < len(names); i++ {
		next, err := openDir(at, names[i])
		if err != nil {
			if errors.Is(err, errNoDir) {
				err = &errNotDir{filepath.Join(names[:i+1]...)}
			}
			return nil, err
		}
		if i == len(d.names) {
			d.names, d.open = append(d.names, names[i]), append(d.open, nil)
		}
		d.open[i], at = next, next
		if old := i - keptOpen; old >= 0 && old%keptOpen != 0 && d.open[old] != nil {
			d.open[old].Close()
			d.open[old] = nil
		}
	}
	return at, nil
}

var errNoDir = errors.New("it is no directory")

// openDir opens a directory. It does not follow a symbolic link.
func openDir(in *os.Root, name string) (*os.Root, error) {
	st, err := in.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, errNoDir
	}
	return in.OpenRoot(name)
}

func (d *dirs) closeFrom(depth int) {
	for _, r := range d.open[depth:] {
		if r != nil {
			r.Close()
		}
	}
	d.names, d.open = d.names[:depth], d.open[:depth]
}

func (d *dirs) close() {
	d.closeFrom(0)
	d.root.Close()
}
