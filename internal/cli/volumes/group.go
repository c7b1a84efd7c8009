package volumes

import "ramet.dev/ramet/internal/cli/session"

// Group is the commands of this package, for one session.
type Group struct{ *session.Session }

// New returns the commands of a session.
func New(s *session.Session) *Group { return &Group{s} }
