package memwatch

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		g := NewGroup()
		defer g.Close()
		var guest atomic.Int64
		done := make(chan struct{})
		p := Process{Done: done, Guest: guest.Load, Rest: func() int64 { return 10 }, Kill: func() { close(done) }}
		w.Set(g, 100, p)
		guest.Store(90)
		<-time.After(time.Second)
		w.Set(g, 0, p)
		guest.Store(1000)
		<-time.After(time.Second)
		if w.Exceeded() {
			t.Fatal("the process was killed within its limit, or without one")
		}
		w.Set(g, 999, p)
		<-time.After(every)
		synctest.Wait()
		if !w.Exceeded() {
			t.Fatal("the process was not killed beyond its limit")
		}
		<-done
	})
}

func TestWatchEndsWithItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		g := NewGroup()
		defer g.Close()
		done := make(chan struct{})
		none := func() int64 { return 0 }
		w.Set(g, 1, Process{Done: done, Guest: none, Rest: none, Kill: func() { t.Error("killed") }})
		close(done)
		synctest.Wait() // the test fails if the goroutine is left
	})
}

func TestGroupCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		g := NewGroup()
		none := func() int64 { return 0 }
		w.Set(g, 1, Process{Done: make(chan struct{}), Guest: none, Rest: none, Kill: func() { t.Error("killed") }})
		g.Close()
	})
}
