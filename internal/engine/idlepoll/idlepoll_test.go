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

	"ramet.dev/ramet/api"
)

// recorder remembers what was asked for.
type recorder struct {
	mu     sync.Mutex
	asked  []int32
	err    error
	closed bool
}

func (d *recorder) Write(b []byte) (int, error) {
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

func (d *recorder) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return nil
}

func (d *recorder) must(t *testing.T, want ...int32) {
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
		d := &recorder{}
		p := &Poller{log: slog.New(slog.DiscardHandler), device: d}
		p.request()
		d.must(t, latencyNone)
		<-time.After(window - 1)
		p.request()
		<-time.After(window - 1)
		d.must(t, latencyNone)
		<-time.After(1)
		d.must(t, latencyNone, latencyAny)
		<-time.After(time.Hour)
		p.request()
		d.must(t, latencyNone, latencyAny, latencyNone)
		if err := p.Close(); err != nil || !d.closed {
			t.Errorf("close: %v, and the device is closed: %v", err, d.closed)
		}
		p.request()
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
		d := &recorder{}
		p := &Poller{log: slog.New(slog.NewTextHandler(&said, nil)), device: d}
		p.request()
		d.mu.Lock()
		d.err = errors.New("no more")
		d.mu.Unlock()
		<-time.After(time.Hour)
		p.request()
		d.must(t, latencyNone)
		if !d.closed || strings.Count(said.String(), "no more") != 1 {
			t.Errorf("the device is closed: %v; it said %q", d.closed, &said)
		}
	})
}

// TestRefusedAtOnce has it refuse while nobody polls.
func TestRefusedAtOnce(t *testing.T) {
	d := &recorder{err: errors.New("no more")}
	p := &Poller{log: slog.New(slog.DiscardHandler), device: d}
	for range 2 {
		p.request()
	}
	if !d.closed || p.timer != nil {
		t.Errorf("the device is closed: %v; a timer runs: %v", d.closed, p.timer != nil)
	}
	if err := p.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &recorder{}
		p := &Poller{log: slog.New(slog.DiscardHandler), device: d}
		defer p.Close()
		for _, p := range []*Poller{p, nil} {
			answered := false
			h := p.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				d.must(t, latencyNone)
				answered = true
			}))
			if h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)); !answered {
				t.Errorf("%v: the request was not answered", p)
			}
		}
	})
}

// machine is a root directory with so many processors, and what stands for the device.
func machine(t *testing.T, online, target string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{onlineCPU: online, device: ""} {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		switch {
		case err != nil || text == "" && target == "":
		case text == "":
			err = os.Symlink(target, path)
		default:
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestOpen(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		online, target, setting string
		open                    bool
		err                     string
	}{
		{"0-1\n", there, "", false, ""},
		{"0-1\n", there, "auto", true, ""},
		{"0-3,8-11\n", there, "auto", true, ""},
		{"0-3,8-12\n", there, "auto", false, ""},
		{"0-127\n", there, "on", true, ""},
		{"0\n", there, "off", false, ""},
		{"none\n", there, "auto", false, ""},
		{"\n", there, "auto", false, ""},
		{"3-0\n", there, "auto", false, ""},
		{"0\n", there, "yes", false, `"yes" is not auto, on or off`},
		{"0\n", "", "auto", false, ""},
		{"0\n", "", "on", false, "X=on: open"},
		{"0\n", "/dev/full", "auto", false, ""},
		{"0\n", "/dev/full", "on", false, "X=on: ask for latency -1"},
	} {
		root := machine(t, c.online, c.target)
		p, err := open(root, "X", c.setting, slog.New(slog.DiscardHandler))
		if (p != nil) != c.open || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v, %v", c, p, err)
		}
		var invalid *api.Error
		if c.setting == "yes" && (!errors.As(err, &invalid) || invalid.Field != "X") {
			t.Errorf("%+v: the error is %#v", c, err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("%+v: close: %v", c, err)
		}
	}
}

func FuzzCountCPU(f *testing.F) {
	for _, list := range []string{"0", "0-3,7", "", ",", "1-", "-1", "5-2", "99999999999999999999"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		if n, err := countCPU(list); err == nil && n < 1 {
			t.Errorf("%q has %d processors", list, n)
		}
	})
}
