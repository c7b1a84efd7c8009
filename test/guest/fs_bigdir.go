package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// bigDir is how many entries a large directory has.
const bigDir = 20000

func fsBigDirCases() []fsCase {
	big := fmt.Sprintf("d d; n d %d", bigDir)
	return []fsCase{
		{name: "readdir/large", tree: big, run: func(t *fsT) {
			names := t.names("d")
			eq(t, "entries", len(names), len(t.nodes)-1)
			for i, name := range names {
				eq(t, "entry", name, fmt.Sprintf("e%05d", i))
			}
			t.listWhileChanging("d", 512)
		}},
		{name: "readdir/small-buffers", tree: "d d; n d 1000", run: func(t *fsT) {
			for _, buffer := range []int{32, 64, 100, 1000} {
				seen := map[string]int{}
				for _, e := range t.entries(t.open("d", rdonly), buffer) {
					seen[e.name]++
				}
				eq(t, "entries", len(seen), 1002)
				for name, n := range seen {
					eq(t, "times that "+name+" was listed", n, 1)
				}
			}
			t.listWhileChanging("d", 64)
		}},
		{name: "readdir/buffer-too-small", tree: "f name x", run: func(t *fsT) {
			_, err := unix.Getdents(t.open(".", rdonly), make([]byte, 20))
			t.is(err, unix.EINVAL)
		}},
		{name: "readdir/types-and-inodes", tree: "f f x; d d; l l f; p p; h h f", run: func(t *fsT) {
			t.put("new", "x")
			want := map[string]byte{"f": unix.DT_REG, "d": unix.DT_DIR, "l": unix.DT_LNK, "p": unix.DT_FIFO, "h": unix.DT_REG, "new": unix.DT_REG, ".": unix.DT_DIR, "..": unix.DT_DIR}
			for range 2 { // the second time when all have been looked up
				entries := t.entries(t.open(".", rdonly), 4096)
				eq(t, "entries", len(entries), len(want))
				for _, e := range entries {
					if e.kind != unix.DT_UNKNOWN {
						eq(t, "type of "+e.name, e.kind, want[e.name])
					}
					if st := t.stat(e.name); st.Ino != e.ino {
						t.fail("inode of entry %s is %d, not %d", e.name, e.ino, st.Ino)
					}
				}
			}
		}},
		{name: "readdir/rewind", tree: "d d; f d/a x; f d/b x", run: func(t *fsT) {
			fd := t.open("d", rdonly)
			eq(t, "entries", len(t.entries(fd, 1000)), 4)
			t.put("d/c", "")
			t.ok(unix.Unlink("d/a"))
			eq(t, "at the end", len(t.entries(fd, 1000)), 0)
			t.seek(fd, 0, unix.SEEK_SET)
			var names []string
			for _, e := range t.entries(fd, 1000) {
				names = append(names, e.name)
			}
			slices.Sort(names)
			eq(t, "after rewinding", strings.Join(names, " "), ". .. b c")
		}},
		{name: "readdir/seek", tree: "d d; n d 200", run: func(t *fsT) {
			fd := t.open("d", rdonly)
			all := t.entries(fd, 256)
			for _, i := range []int{0, 1, 50, 150, 200} {
				t.seek(fd, all[i].off, unix.SEEK_SET)
				rest := t.entries(fd, 1000)
				eq(t, "entries behind", len(rest), len(all)-i-1)
				if len(rest) > 0 {
					eq(t, "next entry", rest[0].name, all[i+1].name)
				}
			}
		}},
		{name: "readdir/removed-while-listing", tree: "d d; n d 2000", run: func(t *fsT) {
			// As rm -r and similar programs do.
			fd := t.open("d", rdonly)
			for {
				some := t.someEntries(fd, 300)
				if len(some) == 0 {
					break
				}
				for _, e := range some {
					if e.name != "." && e.name != ".." {
						t.ok(unix.Unlinkat(fd, e.name, 0))
					}
				}
			}
			t.lists("d", "")
			t.ok(unix.Rmdir("d"))
		}},
		{name: "readdir/several-at-once", tree: "d d; n d 300", run: func(t *fsT) {
			a, b := t.open("d", rdonly), t.open("d", rdonly)
			count := [2]int{}
			for {
				x, y := t.someEntries(a, 100), t.someEntries(b, 333)
				count[0] += len(x)
				count[1] += len(y)
				if len(x)+len(y) == 0 {
					break
				}
			}
			eq(t, "entries", count, [2]int{302, 302})
		}},
		{name: "readdir/new-entries", run: func(t *fsT) {
			fd := t.open(".", rdonly)
			eq(t, "entries", len(t.entries(fd, 1000)), 2)
			t.put("new", "")
			t.lists(".", "new")
			t.ok(unix.Rename("new", "newer"))
			t.lists(".", "newer")
			t.ok(unix.Unlink("newer"))
			t.lists(".", "")
		}},
	}
}

// listWhileChanging lists a directory again and again while entries are added,
// renamed and removed. Those that stay must be listed exactly once.
func (t *fsT) listWhileChanging(dir string, buffer int) {
	stay := len(t.names(dir))
	var stop atomic.Bool
	var changes atomic.Int64
	done := make(chan error, 1)
	go func() {
		done <- t.guard2(func() {
			for i := 0; !stop.Load(); i++ {
				a, b := fmt.Sprintf("%s/x%05d", dir, i%997), fmt.Sprintf("%s/a%05d", dir, i%997)
				t.put(a, "")
				t.ok(unix.Rename(a, b))
				if i%3 > 0 {
					t.ok(unix.Unlink(b))
				}
				changes.Add(1)
			}
		})
	}()
	wrong := ""
	for range 3 {
		// Something must have changed between the first and the last call.
		fd, begin := t.open(dir, rdonly), changes.Load()
		seen := make(map[string]int, stay)
		for some := t.someEntries(fd, buffer); len(some) > 0; some = t.someEntries(fd, buffer) {
			for _, e := range some {
				if strings.HasPrefix(e.name, "e") {
					seen[e.name]++
				}
			}
			for until := time.Now().Add(time.Second); changes.Load() == begin && time.Now().Before(until); {
				runtime.Gosched()
			}
		}
		if len(seen) != stay {
			wrong = fmt.Sprintf("%d of %d entries were listed", len(seen), stay)
		}
		for name, n := range seen {
			if n != 1 {
				wrong = fmt.Sprintf("%s was listed %d times", name, n)
			}
		}
		if changes.Load() == begin {
			wrong = "nothing changed meanwhile: this proves nothing"
		}
	}
	stop.Store(true)
	t.ok(<-done)
	if wrong != "" {
		t.fail("%s", wrong)
	}
}

// guard2 returns what f, in a goroutine of a case, failed with.
func (t *fsT) guard2(f func()) (err error) {
	defer func() {
		if p, ok := recover().(fsFailure); ok {
			err = p
		}
	}()
	f()
	return nil
}

func fsNameCases() []fsCase {
	return []fsCase{
		{name: "names/any-byte", run: func(t *fsT) {
			var want []string
			for b := 1; b < 256; b++ {
				if b == '/' || b == '.' {
					continue
				}
				name := string([]byte{byte(b)})
				t.put(name, fmt.Sprint(b))
				want = append(want, name)
			}
			got := t.names(".")
			if !slices.Equal(got, want) {
				t.fail("listed are %q", got)
			}
			for _, name := range want {
				t.has(name, fmt.Sprint(name[0]))
				t.ok(unix.Rename(name, name+"\xff\n"))
				t.has(name+"\xff\n", fmt.Sprint(name[0]))
				t.ok(unix.Unlink(name + "\xff\n"))
			}
			t.lists(".", "")
		}},
		{name: "names/case-matters", run: func(t *fsT) {
			t.put("name", "lower")
			t.put("NAME", "upper")
			t.put("Straße", "one")
			t.put("STRASSE", "two")
			t.put("e\u0301", "decomposed")
			t.put("\u00e9", "composed")
			t.has("name", "lower")
			t.has("NAME", "upper")
			t.has("e\u0301", "decomposed")
			eq(t, "entries", len(t.names(".")), 6)
		}},
		{name: "names/dots", run: func(t *fsT) {
			for _, name := range []string{"...", ".x", "..x", "x.", "x.."} {
				t.put(name, name)
				t.has(name, name)
			}
			t.ok(unix.Mkdir("....", 0o755))
			t.lists(".", "... .... ..x .x x. x..")
		}},
		{name: "names/slashes", tree: "d d; f d/f deep", run: func(t *fsT) {
			for _, name := range []string{"d//f", "./d/f", "d/./f", "d/../d/f", ".//.//d///f", t.dir + "//d/f", "d/../../" + path.Base(t.dir) + "/d/f"} {
				t.has(name, "deep")
			}
		}},
		{name: "names/root-parent", run: func(t *fsT) {
			var root, parent unix.Stat_t
			t.ok(unix.Stat("/", &root))
			t.ok(unix.Stat("/..", &parent))
			eq(t, "parent of the root", parent.Ino, root.Ino)
		}},
	}
}

func fsDeepCases() []fsCase {
	return []fsCase{
		{name: "deep/path", run: func(t *fsT) {
			// 2000 characters in 200 levels, by one path.
			deep := strings.TrimSuffix(strings.Repeat("level0123/", 200), "/")
			t.ok(os.MkdirAll(deep, 0o755))
			t.put(deep+"/f", "deep")
			t.has(deep+"/f", "deep")
			t.has(deep+"/../"+path.Base(deep)+"/f", "deep")
			t.ok(unix.Rename("level0123/level0123", "moved"))
			below := "moved" + strings.Repeat("/level0123", 198)
			t.has(below+"/f", "deep")
			eq(t, "way back", t.stat(below+strings.Repeat("/..", 199)).Ino, t.stat(".").Ino)
			t.ok(os.RemoveAll("moved"))
			t.lists("level0123", "")
		}},
		{name: "deep/longer-than-a-path", run: func(t *fsT) {
			name := strings.Repeat("d", 250)
			const levels = 40
			dirs := []int{t.open(".", rdonly)}
			for range levels {
				at := dirs[len(dirs)-1]
				t.ok(unix.Mkdirat(at, name, 0o755))
				fd, err := unix.Openat(at, name, rdonly|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				t.ok(err)
				t.later(func() { unix.Close(fd) })
				dirs = append(dirs, fd)
			}
			last := dirs[levels]
			fd, err := unix.Openat(last, "f", rdwr|creat|unix.O_CLOEXEC, 0o644)
			t.ok(err)
			t.write(fd, "bottom")
			t.close(fd)
			var st unix.Stat_t
			t.ok(unix.Fstatat(last, strings.TrimSuffix(strings.Repeat("../", levels), "/"), &st, 0))
			eq(t, "way back", st.Ino, t.stat(".").Ino)
			t.is(unix.Fstatat(dirs[0], strings.Repeat(name+"/", levels)+"f", &st, 0), unix.ENAMETOOLONG)
			if errors.Is(unix.Unlinkat(dirs[0], name, unix.AT_REMOVEDIR), unix.ENOTEMPTY) {
				t.ok(unix.Unlinkat(last, "f", 0))
				for i := levels - 1; i >= 0; i-- {
					t.ok(unix.Unlinkat(dirs[i], name, unix.AT_REMOVEDIR))
				}
			}
			t.lists(".", "")
		}},
		{name: "deep/many-directories", run: func(t *fsT) {
			count := 0
			var grow func(dir string, depth int)
			grow = func(dir string, depth int) {
				for i := range 3 {
					sub := fmt.Sprintf("%s/%d", dir, i)
					t.ok(unix.Mkdir(sub, 0o755))
					t.put(sub+"/f", sub)
					count++
					if depth > 1 {
						grow(sub, depth-1)
					}
				}
			}
			grow(".", 5)
			found := 0
			var visit func(dir string)
			visit = func(dir string) {
				for _, name := range t.names(dir) {
					if sub := dir + "/" + name; name != "f" {
						found++
						t.has(sub+"/f", sub)
						visit(sub)
					}
				}
			}
			visit(".")
			eq(t, "directories", found, count)
			t.ok(unix.Rename("0/1", "1/moved"))
			t.ok(os.RemoveAll("0"))
			t.has("1/moved/2/f", "./0/1/2")
		}},
	}
}
