package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func publish(f *Log, names ...string) {
	for _, n := range names {
		f.Publish(api.Event{Name: n})
	}
}

// read returns the names of what there is after since; numbers stand for lost ones.
func read(t *testing.T, f *Log, since int64) (got []string) {
	t.Helper()
	err := f.Read(t.Context(), since, false, func(e api.Event) (bool, error) {
		if e.Restarted {
			if e.Seq != f.start-1 {
				t.Errorf("the number to go on from is %d of a feed that starts at %d", e.Seq, f.start)
			}
			got = append(got, "restarted")
		} else if e.Lost > 0 {
			got = append(got, fmt.Sprint(e.Lost))
		} else {
			got = append(got, e.Name)
		}
		return false, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestKeepsTheLast(t *testing.T) {
	f := New(3)
	start := f.Now()
	publish(f, "a", "b")
	if got := read(t, f, 0); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("all: %v", got)
	}
	publish(f, "c", "d", "e")
	for since, want := range map[int64][]string{
		0: {"c", "d", "e"}, start: {"2", "c", "d", "e"}, start + 1: {"1", "c", "d", "e"}, start + 2: {"c", "d", "e"}, start + 4: {"e"}, start + 5: nil, start + 99: {"restarted", "2", "c", "d", "e"}, start - 5: {"restarted", "2", "c", "d", "e"},
	} {
		if got := read(t, f, since); !slices.Equal(got, want) {
			t.Errorf("since %d: %v, not %v", since-start, got, want)
		}
	}
	later := New(1)
	if later.Now() <= start {
		t.Error("a later feed begins with smaller numbers")
	}
	if got := read(t, later, start+4); !slices.Equal(got, []string{"restarted"}) {
		t.Errorf("who comes back to a later feed in which nothing has happened is told %v", got)
	}
}

func TestFollow(t *testing.T) {
	f := New(4)
	var wg sync.WaitGroup
	const readers, events = 4, 1000
	for range readers {
		since := f.Now()
		wg.Go(func() {
			seen, at := int64(0), since
			err := f.Read(t.Context(), since, true, func(e api.Event) (bool, error) {
				n := max(1, e.Lost)
				if e.Seq != at+n {
					t.Errorf("event %d with %d lost comes after %d", e.Seq, e.Lost, at)
				}
				seen, at = seen+n, e.Seq
				return seen == events, nil
			})
			if err != nil || seen != events {
				t.Errorf("a reader saw %d of %d events: %v", seen, events, err)
			}
		})
	}
	for range events {
		publish(f, "x")
	}
	wg.Wait()
}

func TestReadEnds(t *testing.T) {
	f := New(4)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	began := make(chan struct{})
	go func() { <-began; cancel(gone) }()
	publish(f, "a")
	if err := f.Read(ctx, 0, true, func(api.Event) (bool, error) { close(began); return false, nil }); err != gone {
		t.Errorf("a reader whose caller goes away ends with %v", err)
	}
	broken := errors.New("broken")
	if err := f.Read(t.Context(), 0, true, func(api.Event) (bool, error) { return false, broken }); err != broken {
		t.Errorf("a reader that fails ends with %v", err)
	}
}
