package stages

import (
	"time"

	"ramet.dev/ramet/internal/engine/wire"
)

// Stages measures steps that follow each other.
type Stages struct {
	at   time.Time
	list []wire.Stage
}

// Begin begins the first stage.
func Begin() Stages { return Stages{at: time.Now()} }

// Mark ends the stage called name, and begins the next one.
func (s *Stages) Mark(name string) {
	now := time.Now()
	s.list = append(s.list, wire.Stage{Name: name, MS: Millis(now.Sub(s.at))})
	s.at = now
}

// Timed returns what a reply says of them.
func (s *Stages) Timed() wire.Timed { return wire.Timed{Stages: s.list} }

// Millis returns a duration in milliseconds, as replies have it.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
