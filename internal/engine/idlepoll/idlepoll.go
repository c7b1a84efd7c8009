package idlepoll

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

const (
	device    = "/dev/cpu_dma_latency"
	onlineCPU = "/sys/devices/system/cpu/online"
	// maxProcessors is how many processors a machine may have, of which all would poll.
	maxProcessors = 8
	// window is how long processors poll for one request.
	window = 5 * time.Millisecond
)

// Values for the device, which takes a signed number of microseconds. PM_QOS_DEFAULT_VALUE
// in the kernel's pm_qos.h is no request.
const (
	latencyNone = 0
	latencyAny  = -1
)

// Poller makes idle processors poll while a request is new. A nil Poller does nothing. It is
// safe for concurrent use.
type Poller struct {
	log *slog.Logger

	mu     sync.Mutex
	device io.WriteCloser
	until  time.Time
	timer  *time.Timer // ends polling; nil while processors may sleep
	closed bool
}

// Open returns the Poller of a setting. "off" and the empty setting give nil. "on" gives a
// Poller, or an error where the device refuses. "auto" gives a Poller, or nil and a line in
// the log where Usable returns an error. Another setting is a *api.Error for the field name.
func Open(name, setting string, log *slog.Logger) (*Poller, error) {
	return open("/", name, setting, log)
}

// open is Open with another root directory.
func open(root, name, setting string, log *slog.Logger) (*Poller, error) {
	switch setting {
	case "", "off":
		return nil, nil
	case "on":
		p, err := start(root, log)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", name, setting, err)
		}
		return p, nil
	case "auto":
		err := Usable(root)
		if err == nil {
			var p *Poller
			if p, err = start(root, log); err == nil {
				return p, nil
			}
		}
		log.Info("idle processors are left alone", "error", err)
		return nil, nil
	}
	return nil, api.Invalid(name, "%q is not auto, on or off", setting)
}

// Hold makes idle processors poll until release is called. It is for measurements.
func Hold() (release func() error, err error) {
	p, err := start("/", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if err := p.write(latencyNone); err != nil {
		p.device.Close()
		return nil, err
	}
	return p.Close, nil
}

func start(root string, log *slog.Logger) (*Poller, error) {
	d, err := os.OpenFile(filepath.Join(root, device), os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the latency device: %w", err)
	}
	p := &Poller{log: log, device: d}
	// A device that refuses is found now and not at the first request.
	if err := p.write(latencyAny); err != nil {
		d.Close()
		return nil, err
	}
	return p, nil
}

// Usable returns why the setting "auto" leaves idle processors alone on the machine whose
// devices are below root: there are too many processors, or the user may not write to the
// device. It returns nil where "auto" uses them.
func Usable(root string) error {
	text, err := os.ReadFile(filepath.Join(root, onlineCPU))
	if err != nil {
		return fmt.Errorf("count processors: %w", err)
	}
	switch n, err := countCPU(strings.TrimSpace(string(text))); {
	case err != nil:
		return fmt.Errorf("count processors: %w", err)
	case n > maxProcessors:
		return fmt.Errorf("there are %d of them, and with more than %d it is too much that all poll", n, maxProcessors)
	}
	if err := unix.Access(filepath.Join(root, device), unix.W_OK); err != nil {
		return fmt.Errorf("write to %s: %w", device, err)
	}
	return nil
}

// countCPU returns how many processors a list such as "0-3,7" has.
func countCPU(list string) (n int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.Atoi(first)
		if err != nil {
			return 0, fmt.Errorf("%q is no list of processors: %w", list, err)
		}
		b, err := strconv.Atoi(last)
		if err != nil {
			return 0, fmt.Errorf("%q is no list of processors: %w", list, err)
		}
		if a < 0 || b < a || b > 1<<20 {
			return 0, fmt.Errorf("%q is no list of processors", list)
		}
		n += b - a + 1
	}
	return n, nil
}

// Handler starts polling for each request and then passes it to next.
func (p *Poller) Handler(next http.Handler) http.Handler {
	if p == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.request()
		next.ServeHTTP(w, r)
	})
}

// request makes processors poll for one window from now on. It takes some microseconds.
func (p *Poller) request() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.until = time.Now().Add(window)
	if p.timer != nil || !p.ask(latencyNone) {
		return
	}
	p.timer = time.AfterFunc(window, p.rest)
}

// rest ends polling, unless a later request has extended it.
func (p *Poller) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if left := time.Until(p.until); left > 0 {
		p.timer.Reset(left)
		return
	}
	p.timer = nil
	p.ask(latencyAny)
}

// ask writes a request for latency to the device. When the device refuses, ask closes p for
// good. p.mu is held.
func (p *Poller) ask(latency int32) bool {
	err := p.write(latency)
	if err != nil {
		p.log.Warn("idle processors are left alone from now on", "error", err)
		p.close()
	}
	return err == nil
}

func (p *Poller) write(latency int32) error {
	if err := binary.Write(p.device, binary.NativeEndian, latency); err != nil {
		return fmt.Errorf("ask for latency %d: %w", latency, err)
	}
	return nil
}

// Close ends polling and closes the device.
func (p *Poller) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	return p.close()
}

func (p *Poller) close() error {
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	return p.device.Close()
}
