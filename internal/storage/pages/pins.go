package pages

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// pin keeps all pages that existed at the end of its epoch. The epochs of pins differ, as each
// pin begins a new one.
type pin struct {
	id    string
	epoch uint32
	// dead are the ranges that the tree gave up and of which this is the youngest pin that
	// needs them. So a range is looked at only when that pin is released.
	dead []deadRange
}

// deadRange is a range of pages that only pins need: those with epochs from born on.
type deadRange struct {
	start Page
	n     Page
	born  uint32
}

// Pin makes all pages that exist now immutable until Release.
func (s *Store) Pin(id string) error {
	if s.findPin(id) >= 0 {
		return fmt.Errorf("there is a pin %q already", id)
	}
	if s.epoch == math.MaxUint32 {
		return errors.New("too many pins were made")
	}
	s.pins = append(s.pins, &pin{id: id, epoch: s.epoch})
	s.maxPinned = s.epoch
	s.epoch++
	return nil
}

// findPin returns the index of a pin, or -1. It begins with the youngest: there are few pins,
// and most live shortly.
func (s *Store) findPin(id string) int {
	for i := len(s.pins) - 1; i >= 0; i-- {
		if s.pins[i].id == id {
			return i
		}
	}
	return -1
}

// Pins returns the ids of all pins, oldest first.
func (s *Store) Pins() []string {
	ids := make([]string, len(s.pins))
	for i, p := range s.pins {
		ids[i] = p.id
	}
	return ids
}

// Release drops a pin and frees the pages that no other pin needs.
func (s *Store) Release(id string) {
	i := s.findPin(id)
	if i < 0 {
		return
	}
	gone := s.pins[i]
	s.pins = slices.Delete(s.pins, i, i+1)
	var older *pin
	if i > 0 {
		older = s.pins[i-1]
	}
	if i == len(s.pins) {
		s.maxPinned = 0
		if older != nil {
			s.maxPinned = older.epoch
		}
	}
	var unneeded []deadRange
	for _, d := range gone.dead {
		if older != nil && d.born <= older.epoch {
			older.addDead(d)
		} else {
			unneeded = append(unneeded, d)
		}
	}
	s.reclaimAll(unneeded)
}

// addDead adds a range to the dead of a pin.
func (p *pin) addDead(d deadRange) {
	if n := len(p.dead); n > 0 {
		if last := &p.dead[n-1]; last.born == d.born && last.start+last.n == d.start {
			last.n += d.n
			return
		}
	}
	p.dead = append(p.dead, d)
}

// reclaimAll frees ranges. Neighbours are freed together, so that they become one hole.
func (s *Store) reclaimAll(ranges []deadRange) {
	slices.SortFunc(ranges, func(a, b deadRange) int { return cmp.Compare(a.start, b.start) })
	for len(ranges) > 0 {
		start, end, n := ranges[0].start, ranges[0].start+ranges[0].n, 1
		for n < len(ranges) && ranges[n].start == end {
			end += ranges[n].n
			n++
		}
		s.reclaim(start, end-start)
		ranges = ranges[n:]
	}
}
