package systraptuning

import (
	"slices"
	"testing"
	"weak"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/mm"
)

func pagesOf(l *lesson) (at []hostarch.Addr) {
	for _, p := range l.take() {
		at = append(at, p.at)
	}
	return at
}

func TestLesson(t *testing.T) {
	var l lesson
	l.note(0x1234, hostarch.Read)
	l.note(0x5678, hostarch.Write)
	l.note(0x9abc, hostarch.Execute)
	if got, want := pagesOf(&l), []hostarch.Addr{0x5000, 0x1000, 0x9000}; !slices.Equal(got, want) {
		t.Errorf("pages are %x, want %x", got, want)
	}
	l.note(0x1000, hostarch.Write) // read first, then written to
	l.note(0x9000, hostarch.Read)  // although it was mapped
	if got, want := l.take(), []lessonPage{{0x1000, true, false}, {0x5000, true, false}, {0x9000, false, true}}; !slices.Equal(got, want) {
		t.Errorf("pages are %+v, want %+v", got, want)
	}
	for i := range hostarch.Addr(2 * lessonPages) {
		l.note(i<<20, hostarch.Read)
	}
	if n := len(l.take()); n != lessonPages {
		t.Errorf("it has %d pages", n)
	}
}

// TestFamilies: the lessons of few parents are kept, and they begin anew.
func TestFamilies(t *testing.T) {
	var fs families
	var f family
	f.child.note(0x1000, hostarch.Read)
	f.parent.note(0x1000, hostarch.Read)
	for i := 1; i <= lessonForks; i++ {
		if n := len(f.child.take()) + len(f.parent.take()); n != 2 {
			t.Fatalf("after %d forks there are %d pages", i, n)
		}
		f.fork()
	}
	if n := len(f.child.take()) + len(f.parent.take()); n != 0 {
		t.Errorf("%d pages are kept", n)
	}
	var parents []*mm.MemoryManager
	for range mostFamilies + 1 {
		parents = append(parents, new(mm.MemoryManager))
	}
	for _, parent := range parents {
		fs.put(weak.Make(parent), &f)
		fs.put(weak.Make(parent), &f)
	}
	first, second, last := weak.Make(parents[0]), weak.Make(parents[1]), weak.Make(parents[mostFamilies])
	if fs.of(first) != nil || fs.of(second) != &f || fs.of(last) != &f || len(fs.recent) != mostFamilies {
		t.Errorf("%d families are kept", len(fs.recent))
	}
	fs.drop(last)
	if fs.of(last) != nil || fs.of(second) != &f {
		t.Error("the wrong family was forgotten")
	}
}

// TestReplayedNeighbours: a page that another one brought is not mapped again.
func TestReplayedNeighbours(t *testing.T) {
	as := &addressSpace{AddressSpace: &hostSpace{}, replaying: true}
	mapAt(t, as, 0x1000, 0x4000) // to be read
	for _, c := range []struct {
		page lessonPage
		want bool
	}{
		{lessonPage{at: 0x2000}, true}, {lessonPage{at: 0x2000, write: true}, false}, {lessonPage{at: 0x4000}, false},
	} {
		if got := as.hasReplayed(c.page); got != c.want {
			t.Errorf("%+v: %t", c.page, got)
		}
	}
}
