package held

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// TestGive makes requests of a sandbox those of another one: what waits and is asked for, and what may
// have been sent.
func TestGive(t *testing.T) {
	dir, s := filepath.Join(t.TempDir(), "held"), &server{}
	q := openQueue(t, hostfs.OS, dir, s, func(l *Limits) { l.Requests = 4 })
	other := Origin{Sandbox: "sbx_b", Name: "other.example.com", Port: 443}
	for range 4 {
		hold(t, q, Origin{Sandbox: "sbx_b", Name: "own.example.com", Port: 80})
	}
	kept, sent := hold(t, q, origin), hold(t, q, Origin{Sandbox: "sbx_a", Name: "other.example.com", Port: 443})
	unknown := hold(t, q, origin)
	s.fail = func(*Request) error { return errors.New("the connection broke") }
	if _, err := q.Release(t.Context(), unknown, false); err == nil {
		t.Fatal("a server that breaks off has answered")
	}
	s.fail = nil
	dropped := hold(t, q, origin)
	if err := q.Drop(dropped); err != nil {
		t.Fatal(err)
	}
	if err := q.Give("sbx_a", "sbx_b", func(r *Request) bool { return r.Name == origin.Name }); err != nil {
		t.Fatal(err)
	}
	check := func(q *Queue) {
		t.Helper()
		var mine, theirs []string
		for _, r := range q.List("sbx_a") {
			mine = append(mine, r.ID)
		}
		for _, r := range q.List("sbx_b")[4:] {
			theirs = append(theirs, r.ID)
			if r.Taken.IsZero() || r.ID == unknown && r.Note == "" {
				t.Errorf("it was given as %+v", r)
			}
		}
		if !slices.Equal(mine, []string{sent, dropped}) || !slices.Equal(theirs, []string{kept, unknown}) {
			t.Errorf("one has %v, the other %v", mine, theirs)
		}
		if a, b := q.room.use["sbx_a"], q.room.use["sbx_b"]; a != (usage{1, 4}) || b != (usage{6, 24}) {
			t.Errorf("in use are %v and %v", a, b)
		}
	}
	check(q)
	q.Close()
	q = openQueue(t, hostfs.OS, dir, s, func(l *Limits) { l.Requests = 4 })
	check(q)
	if _, err := q.Add(other, request(t, "POST", "body")); api.CodeOf(err) != api.CodeLimit {
		t.Errorf("one more is held in spite of the limit: %v", err)
	}
	if err := errors.Join(q.DropSandbox("sbx_a", true), q.DropSandbox("sbx_b", true)); err != nil || len(q.room.use) != 0 || len(files(t, dir)) != 0 {
		t.Errorf("after dropping %v are in use, the files are %v: %v", q.room.use, files(t, dir), err)
	}
}

// TestDropUndone drops what a rollback has undone.
func TestDropUndone(t *testing.T) {
	q := openQueue(t, hostfs.OS, filepath.Join(t.TempDir(), "held"), &server{}, nil)
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	q.now = func() time.Time { at = at.Add(time.Second); return at }
	run := func(run string) string { return hold(t, q, Origin{Sandbox: "sbx_a", Run: run, Name: "x", Port: 80}) }
	before := run("old")
	since := at
	during, earlier := run("old"), run("older")
	another := hold(t, q, Origin{Sandbox: "sbx_b", Run: "old", Name: "x", Port: 80})
	until := at
	late, next := run("old"), run("new")
	undone := Undone{Sandbox: "sbx_a", Since: since, Until: until, Run: "old"}
	for range 2 {
		if err := q.DropUndone(&undone); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]State{before: Waiting, during: Dropped, earlier: Dropped, another: Waiting, late: Dropped, next: Waiting} {
			if got := state(t, q, id); got != want {
				t.Errorf("request %d of %v is %s, not %s", q.items[id].number, undone, got, want)
			}
		}
	}
	// What came from a child belongs to the sandbox from then on.
	child := hold(t, q, Origin{Sandbox: "sbx_c", Run: "child", Name: "x", Port: 80})
	since = at
	if err := q.Give("sbx_c", "sbx_a", func(*Request) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if err := q.DropUndone(&Undone{Sandbox: "sbx_a", Since: since, Until: at}); err != nil || state(t, q, child) != Dropped || state(t, q, next) != Waiting {
		t.Errorf("what came from a child is %s, what was there %s: %v", state(t, q, child), state(t, q, next), err)
	}
	// Of a snapshot of an ancestor all is undone.
	if err := q.DropUndone(&Undone{Sandbox: "sbx_a", Until: at}); err != nil || state(t, q, before) != Dropped || state(t, q, next) != Dropped {
		t.Errorf("they are %s and %s: %v", state(t, q, before), state(t, q, next), err)
	}
}
