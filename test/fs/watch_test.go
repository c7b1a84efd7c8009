package fs

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// watching is a watch under way. seen is what it told.
type watching struct {
	n      *harness.Node
	events chan api.FileEvents
	cancel context.CancelFunc
	ended  chan error
	seen   []string
	lost   bool
}

func watch(n *harness.Node, ref string, req api.WatchRequest) *watching {
	n.T.Helper()
	ctx, cancel := context.WithCancel(harness.AsOwner)
	w := &watching{n: n, events: make(chan api.FileEvents, 1<<16), cancel: cancel, ended: make(chan error, 1)}
	go func() {
		w.ended <- n.Machine.WatchFiles(ctx, ref, req, func(e api.FileEvents) error {
			w.events <- e
			return nil
		})
	}()
	select {
	case e := <-w.events:
		if !e.Ready {
			n.T.Fatalf("first event: %+v", e)
		}
	case err := <-w.ended:
		n.T.Fatalf("watch: %v", err)
	}
	return w
}

// wait waits until all of want were told.
func (w *watching) wait(want ...string) {
	w.n.T.Helper()
	timeout := time.After(harness.Timeout)
	for _, x := range want {
		for !slices.Contains(w.seen, x) {
			select {
			case e := <-w.events:
				w.lost = w.lost || e.Overflow
				for _, c := range e.Changes {
					w.seen = append(w.seen, c.Kind+" "+c.Path)
				}
			case err := <-w.ended:
				w.n.T.Fatalf("the watch ended: %v", err)
			case <-timeout:
				w.n.T.Fatalf("%q was not told, but %q", x, w.seen)
			}
		}
	}
}

func (w *watching) end() {
	w.n.T.Helper()
	w.cancel()
	if err := <-w.ended; !errors.Is(err, context.Canceled) {
		w.n.T.Errorf("watch: %v", err)
	}
}

func TestWatchTellsChanges(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/d/sub/file"), Parents: true}, "x")
	flat := watch(n, ref, api.WatchRequest{FileRef: harness.At("/srv/d")})
	deep := watch(n, ref, api.WatchRequest{FileRef: harness.At("/srv/d"), Recursive: true, DebounceMS: 10})
	one := watch(n, ref, api.WatchRequest{FileRef: harness.At("/srv/d/sub/file")})

	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/d/sub/file")}, "y")
	deep.wait("modified /srv/d/sub/file")
	one.wait("modified /srv/d/sub/file")
	// One that is replaced, as editors do and an atomic write does, is watched on, and
	// its neighbours are not.
	for range 2 {
		one.seen = nil
		n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/d/sub/file"), Atomic: true}, "z")
		one.wait("created /srv/d/sub/file")
		n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/d/sub/neighbour")}, "z")
		n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/d/sub/file")}, "zz")
		one.wait("modified /srv/d/sub/file")
		if got := strings.Join(one.seen, " "); strings.Contains(got, "deleted") || strings.Contains(got, "neighbour") {
			t.Errorf("told was %q", one.seen)
		}
	}
	// Directories that appear are watched, and what is in them already is told.
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/d/new/er/file"), Parents: true}, "z")
	flat.wait("created /srv/d/new")
	deep.wait("created /srv/d/new", "created /srv/d/new/er", "created /srv/d/new/er/file")
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/d/new/er/other\xff\n")}, "z")
	deep.wait("created /srv/d/new/er/other\xff\n")
	// A directory that moves has another path.
	if err := n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/srv/d/new"), Action: api.FileMove, To: "/srv/d/moved"}); err != nil {
		t.Fatal(err)
	}
	deep.wait("deleted /srv/d/new", "created /srv/d/moved", "created /srv/d/moved/er/file")
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/d/moved/er/late")}, "z")
	deep.wait("created /srv/d/moved/er/late")
	if err := n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/srv/d/moved/er/late"), Action: api.FileChmod, Mode: mode(0)}); err != nil {
		t.Fatal(err)
	}
	deep.wait("attributes /srv/d/moved/er/late")
	if err := n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/srv/d/moved"), Action: api.FileRemove, Recursive: true}); err != nil {
		t.Fatal(err)
	}
	deep.wait("deleted /srv/d/moved/er/late", "deleted /srv/d/moved")
	// What the guest does is told too.
	n.Guest(ref, "write", "/srv/d/by-guest", "text")
	flat.wait("created /srv/d/by-guest")
	for _, s := range flat.seen {
		if strings.Contains(s, "/sub/") || strings.Contains(s, "/new/") {
			t.Errorf("a watch that is not recursive tells %s", s)
		}
	}
	one.seen = nil
	for _, action := range []api.FileAction{api.FileRemove, api.FileMkdir} {
		if err := n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/srv/d/sub/file"), Action: action}); err != nil {
			t.Fatal(err)
		}
		one.wait(map[api.FileAction]string{api.FileRemove: "deleted /srv/d/sub/file", api.FileMkdir: "created /srv/d/sub/file"}[action])
	}
	for _, w := range []*watching{flat, deep, one} {
		w.end()
	}
	err := n.Machine.WatchFiles(harness.AsOwnerIn(t), ref, api.WatchRequest{FileRef: harness.At("/srv/nothing")}, func(api.FileEvents) error { return nil })
	harness.WantCode(t, err, api.CodeNotFound)
}

// TestWatchTellsEachKind: who asks for every change is told of a write of a new file, of its end, and of moves.
func TestWatchTellsEachKind(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	w := watch(n, ref, api.WatchRequest{FileRef: harness.At("/srv"), Recursive: true, Every: true, DebounceMS: 100})
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/file")}, "x")
	if err := n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/srv/file"), Action: api.FileMove, To: "/srv/moved"}); err != nil {
		t.Fatal(err)
	}
	if err := n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/srv/moved"), Action: api.FileRemove}); err != nil {
		t.Fatal(err)
	}
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/new/file"), Parents: true}, "x")
	w.wait("created /srv/file", "modified /srv/file", "moved /srv/file", "created /srv/moved", "deleted /srv/moved", "created /srv/new", "created /srv/new/file", "modified /srv/new/file")
	w.end()
}

// TestWatchCollects changes one file many times: who asked for changes of a second
// together is not told of each.
func TestWatchCollects(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	const writes = 60
	w := watch(n, ref, api.WatchRequest{FileRef: harness.At("/srv"), DebounceMS: 1000})
	for range writes {
		n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/often")}, "x")
	}
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/last")}, "x")
	w.wait("created /srv/last")
	told := 0
	for _, s := range w.seen {
		if strings.HasSuffix(s, " /srv/often") {
			told++
		}
	}
	if told == 0 || told > writes/2 {
		t.Errorf("of %d changes of a file %d were told", writes, told)
	}
	w.end()
}

// TestWatchOverflows changes more than a watch keeps, with a client that takes
// nothing meanwhile.
func TestWatchOverflows(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	watch := watch(n, ref, api.WatchRequest{FileRef: harness.At("/srv"), Recursive: true, DebounceMS: 60_000})
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/first")}, "x")
	watch.end()
	slow := make(chan struct{})
	ctx, cancel := context.WithCancel(harness.AsOwnerIn(t))
	ended := make(chan struct{})
	defer func() {
		cancel()
		<-ended
	}()
	lost, ready := make(chan bool, 1), make(chan bool, 1)
	go func() {
		defer close(ended)
		_ = n.Machine.WatchFiles(ctx, ref, api.WatchRequest{FileRef: harness.At("/srv"), Recursive: true}, func(e api.FileEvents) error {
			if e.Ready {
				ready <- true
				select {
				case <-slow:
				case <-ctx.Done():
				}
			}
			if e.Overflow {
				cancel()
				lost <- true
			}
			return nil
		})
	}()
	<-ready
	var entries []*tar.Header
	for i := range 6000 {
		entries = append(entries, &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("many/%04d-%s", i, strings.Repeat("n", 100)), Mode: 0o644})
	}
	if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv"), false, harness.TarOf(t, entries...)); err != nil {
		t.Fatal(err)
	}
	close(slow)
	select {
	case <-lost:
	case <-time.After(harness.Timeout):
		t.Error("nothing was lost, although more happened than is kept")
	}
}

// TestStoresChangeETags stores to a file through a mapping: who has been told an ETag
// must see that the file is another one, and one that is only read is the same.
func TestStoresChangeETags(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/mapped")}, strings.Repeat("x", 4096))
	pid := n.Start(ref, api.StartRequest{Stdin: true}, "store", "/srv/mapped")
	f := n.Follow(ref, pid, 0)
	tagIn := func(ref string) string {
		t.Helper()
		info, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, harness.At("/srv/mapped"))
		if err != nil {
			t.Fatal(err)
		}
		return info.ETag
	}
	tag := func() string { return tagIn(ref) }
	said, last := "", tag()
	do := func(what rune) {
		said += string(what) + "\n"
		f.Say(string(what) + "\n")
		f.Await(said)
	}
	for i, what := range "rwrwwrrw" {
		do(what)
		now := tag()
		if changed := now != last; changed != (what == 'w') {
			t.Errorf("after %c, the %dth: the ETag was %s and is %s", what, i, last, now)
		}
		last = now
	}
	if got, err := n.Read(ref, harness.At("/srv/mapped")); err != nil || got[1] != 7 {
		t.Errorf("the file has %q, %v", got[:2], err)
	}
	// A fork comes between two stores, and nobody looks at the file but then.
	do('w')
	child := n.Fork(ref, 1)[0].ID
	do('r')
	do('w')
	if parents, childs := tag(), tagIn(child); parents == childs {
		t.Errorf("files that differ since a fork have one ETag, %s", childs)
	}
}
