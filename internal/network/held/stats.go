package held

import "time"

// Stats are numbers about the requests of all sandboxes that are not finished.
type Stats struct {
	// Waiting is how many wait for a verdict, and Unknown how many may have been sent.
	Waiting int `json:"waiting"`
	Unknown int `json:"unknown"`
	// Bytes are those of the bodies of all that are not finished.
	Bytes int64 `json:"bytes"`
	// Oldest is when the oldest that waits came; zero if none waits.
	Oldest time.Time `json:"oldest,omitzero"`
}

// StatsOf returns the numbers about requests that List has returned.
func StatsOf(list []Request) (s Stats) {
	for i := range list {
		r := &list[i]
		switch {
		case r.State.Finished():
			continue
		case r.State == Unknown:
			s.Unknown++
		case r.State == Waiting:
			if s.Waiting++; s.Oldest.IsZero() || r.Created.Before(s.Oldest) {
				s.Oldest = r.Created
			}
		}
		s.Bytes += r.Size
	}
	return s
}
