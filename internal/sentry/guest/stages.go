package guest

import (
	gotime "time"

	"ramet.dev/ramet/internal/engine/wire"
)

// stages measures what is done one after the other.
type stages struct {
	at   gotime.Time
	list []wire.Stage
}

// begin begins the first stage.
func begin() stages { return stages{at: gotime.Now()} }

// mark ends the stage called name, and begins the next one.
func (s *stages) mark(name string) {
	now := gotime.Now()
	s.list = append(s.list, wire.Stage{Name: name, MS: millis(now.Sub(s.at))})
	s.at = now
}

// timed returns what a reply says of them.
func (s *stages) timed() wire.Timed { return wire.Timed{Stages: s.list} }
