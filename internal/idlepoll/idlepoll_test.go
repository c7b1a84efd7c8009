package idlepoll

import (
	"bytes"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

// device remembers what was asked for.
type device struct {
	mu     sync.Mutex
	asked  []int32
	err    error
	closed bool
}

func (d *device) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(b) != 4 || d.closed {
		return 0, os.ErrInvalid
	}
	if d.err != nil {
		return 0, d.err
	}
	d.asked = append(d.asked, int32(binary.NativeEndian.Uint32(b)))
	return len(b), nil
}

func (d *device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return nil
}

func (d *device) must(t *testing.T, want ...int32) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.asked, want) {
		t.Errorf("it was asked for %v, not %v", d.asked, want)
	}
}

// TestRequests has processors poll once for requests that follow each other, until the last
// of them is old. Time is that of the bubble: nothing waits.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &device{}
		p := &Poller{log: slog.New(slog.DiscardHandler), device: d}
		p.Request()
		d.must(t, latencyNone)
		<-time.After(window - 1)
		p.Request()
		<-time.After(window - 1)
		d.must(t, latencyNone)
		<-time.After(1)
		d.must(t, latencyNone, latencyAny)
		<-time.After(time.Hour)
		p.Request()
		d.must(t, latencyNone, latencyAny, latencyNone)
		if err := p.Close(); err != nil || !d.closed {
			t.Errorf("close: %v, and the device is closed: %v", err, d.closed)
		}
		p.Request()
		<-time.After(time.Hour)
		d.must(t, latencyNone, latencyAny, latencyNone)
		if err := p.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
	})
}

// TestRefused has the device refuse: that is said once, and requests go on.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		d := &device{}
		p := &Poller{log: slog.New(slog.NewTextHandler(&said, nil)), device: d}
		p.Request()
		d.mu.Lock()
		d.err = errors.New("no more")
		d.mu.Unlock()
		<-time.After(time.Hour)
		p.Request()
		d.must(t, latencyNone)
		if !d.closed || strings.Count(said.String(), "no more") != 1 {
			t.Errorf("the device is closed: %v; it said %q", d.closed, &said)
		}
	})
}

func TestHandler(t *testing.T) {
	d := &device{}
	p := &Poller{log: slog.New(slog.DiscardHandler), device: d}
	defer p.Close()
	for _, p := range []*Poller{p, nil} {
		answered := false
		h := p.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			answered = p == nil || slices.Contains(d.asked, latencyNone)
		}))
		if h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)); !answered {
			t.Errorf("%v: the request was not answered, or before processors polled", p)
		}
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	there, none := filepath.Join(dir, "there"), filepath.Join(dir, "none")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, setting string
		processors    int
		open          bool
		err           string
	}{
		{there, "", 2, true, ""},
		{there, Auto, MaxProcessors, true, ""},
		{there, Auto, MaxProcessors + 1, false, ""},
		{there, On, MaxProcessors + 1, true, ""},
		{there, Off, 2, false, ""},
		{there, "yes", 2, false, `"yes" is not auto, on or off`},
		{there, "yes", 64, false, `"yes" is not auto, on or off`},
		{none, "", 2, false, ""},
		{none, On, 2, false, "X=on: open"},
	} {
		p, err := open(c.path, "X", c.setting, c.processors, slog.New(slog.DiscardHandler))
		if (p != nil) != c.open || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v, %v", c, p, err)
		}
		var invalid *sandbox.Error
		if c.setting == "yes" && (!errors.As(err, &invalid) || invalid.Field != "X") {
			t.Errorf("%+v: the error is %#v", c, err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("%+v: close: %v", c, err)
		}
	}
}
