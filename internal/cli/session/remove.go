package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli/console"
)

// removed is the JSON of a command that removes.
type removed struct {
	Removed []string     `json:"removed"`
	Failed  []notRemoved `json:"failed,omitempty"`
}

// notRemoved is an object that was not removed, and the reason.
type notRemoved struct {
	Ref   string     `json:"ref"`
	Error *api.Error `json:"error"`
}

// ErrNothing is the error of something that does not exist, and that may be missing: it was not removed,
// and nothing is wrong.
var ErrNothing = errors.New("there is no such thing")

// RemoveEach removes all of refs that it can, and returns the errors. The code of the first one
// decides the exit code. With several refs, JSON lists what was removed and what was not.
func (s *Session) RemoveEach(refs []string, remove func(string) error) error {
	done := []string{}
	errs := make([]error, len(refs))
	todo := make([]int, len(refs))
	for i := range refs {
		todo[i] = i
	}
	for again := true; again; {
		again = false
		todo = slices.DeleteFunc(todo, func(i int) bool {
			switch errs[i] = remove(refs[i]); errs[i] {
			case nil:
				done = append(done, refs[i])
				again = true // objects that were in conflict may be free now
			case ErrNothing:
				errs[i] = nil
			}
			return api.CodeOf(errs[i]) != api.CodeConflict
		})
	}
	if err := errors.Join(errs...); err != nil {
		if len(done) > 0 && !s.JSON {
			fmt.Fprintln(s.Out, strings.Join(done, "\n"))
		}
		if len(refs) == 1 || !s.JSON {
			return err
		}
		out := removed{Removed: done}
		for i, err := range errs {
			if err != nil {
				out.Failed = append(out.Failed, notRemoved{refs[i], api.AsError(err)})
			}
		}
		if err := s.WriteJSON(out); err != nil {
			return err
		}
		return ExitError(api.CodeOf(err).ExitCode())
	}
	return s.Show(removed{Removed: done}, console.Lines(done))
}
