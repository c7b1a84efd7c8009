package idlepoll

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

const (
	// Device is where Linux takes requests.
	Device = "/dev/cpu_dma_latency"
	// MaxProcessors is how many processors a machine may have, of which all would poll.
	MaxProcessors = 8
	// window is how long processors poll for one request.
	window = 5 * time.Millisecond
)

// What is written to the device, which takes a signed number of microseconds: PM_QOS_DEFAULT_VALUE
// in the kernel's pm_qos.h is no request.
const (
	latencyNone = 0
	latencyAny  = -1
)

// Settings of Open.
const (
	Auto = "auto"
	On   = "on"
	Off  = "off"
)

// Poller has processors poll when it is told of a request. A nil Poller does nothing. It may
// be used by several goroutines.
type Poller struct {
	log *slog.Logger

	mu     sync.Mutex
	device io.WriteCloser
	until  time.Time
	timer  *time.Timer // ends polling; nil if nobody polls
	closed bool
}

// Open returns a Poller as setting says, on a machine of so many processors: with Auto, or
// nothing, a nil one if there are too many or the device cannot be written to. The error of
// another setting is a *sandbox.Error for the field name.
func Open(name, setting string, processors int, log *slog.Logger) (*Poller, error) {
	return open(Device, name, setting, processors, log)
}

func open(path, name, setting string, processors int, log *slog.Logger) (*Poller, error) {
	isAuto := setting == "" || setting == Auto
	switch {
	case setting == Off || isAuto && processors > MaxProcessors:
		return nil, nil
	case !isAuto && setting != On:
		return nil, sandbox.Invalid(name, "%q is not %s, %s or %s", setting, Auto, On, Off)
	}
	device, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		if isAuto {
			log.Info("idle processors sleep while a request is new", "error", err)
			return nil, nil
		}
		return nil, fmt.Errorf("%s=%s: %w", name, setting, err)
	}
	p := &Poller{log: log, device: device}
	if err := p.write(latencyAny); err != nil { // it is tried now, and not at the first request
		device.Close()
		return nil, fmt.Errorf("%s=%s: %w", name, setting, err)
	}
	return p, nil
}

// Handler tells p of each request before next has it.
func (p *Poller) Handler(next http.Handler) http.Handler {
	if p == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Request()
		next.ServeHTTP(w, r)
	})
}

// Request has processors poll from now on for a few milliseconds. It takes some
// microseconds, and does not block.
func (p *Poller) Request() {
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

// rest ends what Request began, unless there was another one.
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

// ask gives up for good when the device refuses. p.mu is held.
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

// Close takes back what was asked for.
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
