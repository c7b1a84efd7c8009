package compare

import "ramet.dev/ramet/internal/cli/session"

// Group is the commands about differences, in one run of the command line.
type Group struct{ *session.Session }

// New returns the commands of a session.
func New(s *session.Session) *Group { return &Group{s} }
