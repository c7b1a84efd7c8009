package treediff

import (
	"fmt"
	"math/rand/v2"
	"path"
	"strings"

	"ramet.dev/ramet/internal/storage/cowfs"
)

// random makes one random change.
func (g *testGuest) random(r *rand.Rand) {
	g.t.Helper()
	var all, dirs []string
	var walk func(p string, ino cowfs.Ino)
	walk = func(p string, ino cowfs.Ino) {
		a := g.attr(ino)
		all = append(all, p)
		if a.IsDir() {
			dirs = append(dirs, p)
			for _, name := range g.list(ino) {
				e, _, err := g.fs.Lookup(ino, name)
				g.ok(err)
				walk(path.Join(p, name), e.Ino)
			}
		}
	}
	walk("/", g.fs.Root())
	some := func(list []string) string { return list[r.IntN(len(list))] }
	fresh := func() string {
		return path.Join(some(dirs), some([]string{"a", "b", "c", "f0", "f1", "new", fmt.Sprint("n", r.IntN(20))}))
	}
	p := some(all)
	ino, _, _ := g.find(p)
	a := g.attr(ino)
	free := func(p string) bool {
		_, _, ok := g.find(p)
		return !ok
	}
	isFile := a.Mode&cowfs.TypeMask == cowfs.TypeReg
	data := func() []byte {
		b := make([]byte, 1+r.IntN(3)*r.IntN(8000))
		for i := range b {
			b[i] = byte(r.IntN(2))
		}
		return b
	}
	q := fresh()
	switch r.IntN(15) {
	case 0, 1:
		if free(q) {
			g.mkdir(q)
		}
	case 2, 3:
		if free(q) {
			g.write(q, 0, data())
		}
	case 4:
		if free(q) {
			g.symlink(q, some([]string{"x", "y", strings.Repeat("long", 700)}))
		}
	case 5:
		if isFile {
			g.write(p, uint64(r.IntN(20000)), data())
		}
	case 6:
		if isFile {
			g.truncate(p, uint64(r.IntN(20000)))
		}
	case 7:
		if isFile {
			g.punch(p, uint64(r.IntN(9000)), uint64(1+r.IntN(9000)))
		}
	case 8:
		g.chmod(p, uint32(r.IntN(3))|0o700)
	case 9:
		g.chown(p, uint32(r.IntN(3)), 0)
	case 10:
		g.setxattr(p, some([]string{"user.a", "user.b"}), some([]string{"", "1", "2", strings.Repeat("x", 3000)}))
	case 11:
		if p != "/" && !a.IsDir() && free(q) {
			g.link(p, q)
		}
	case 12:
		if p != "/" && (!a.IsDir() || r.IntN(4) == 0) {
			g.remove(p)
		}
	case 13:
		if to, _, ok := g.find(q); p != "/" && !Below(q, p) && !Below(p, q) && (!ok || g.attr(to).Mode&cowfs.TypeMask == a.Mode&cowfs.TypeMask) {
			g.rename(p, q)
		}
	case 14:
		if q = some(all); p != "/" && q != "/" && !Below(p, q) && !Below(q, p) {
			g.exchange(p, q)
		}
	}
	// Now and then the same bytes again, which is no change.
	if r.IntN(8) == 0 && isFile && a.Size > 0 {
		if ino, _, ok := g.find(p); ok && g.attr(ino).Mode&cowfs.TypeMask == cowfs.TypeReg {
			a := g.attr(ino)
			var b []byte
			g.ok(g.fs.Read(ino, &a, 0, a.Size, func(mem []byte, size int) (int, error) {
				b = append(b, make([]byte, size)...)
				copy(b[len(b)-size:], mem)
				return size, nil
			}))
			if len(b) > 0 {
				g.write(p, 0, b)
			}
		}
	}
}
