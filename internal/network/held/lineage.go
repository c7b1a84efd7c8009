package held

import (
	"errors"
	"time"

	"ramet.dev/ramet/api"
)

// Undone is what a sandbox did that was rolled back: what it held from a moment on until another, and
// what the run that ended with the rollback held after that.
type Undone struct {
	Sandbox string    `json:"sandbox"`
	Since   time.Time `json:"since,omitzero"` // zero undoes all
	Until   time.Time `json:"until"`
	Run     string    `json:"run,omitempty"`
}

// has reports whether a request was undone.
func (u *Undone) has(r *Request) bool {
	since := r.Created
	if !r.Taken.IsZero() {
		since = r.Taken // before, the state of the sandbox was another one's
	}
	return r.Sandbox == u.Sandbox && since.After(u.Since) && (!since.After(u.Until) || u.Run != "" && r.Run == u.Run)
}

// DropUndone drops the requests that a rollback has undone and that are not being sent.
func (q *Queue) DropUndone(u *Undone) error {
	var errs []error
	for _, r := range q.List(u.Sandbox) {
		if r.State.Finished() || !u.has(&r) {
			continue
		}
		it, err := q.find(r.ID)
		if err == nil {
			err = q.finish(it, Dropped, "the sandbox was rolled back to a moment before it")
		}
		if err != nil && api.CodeOf(err) != api.CodeWrongState {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Give makes requests of a sandbox those of another one, which goes on with its state: those that wait
// and that keep has, and those that may have been sent. Limits of the other one do not refuse them.
func (q *Queue) Give(from, to string, keep func(*Request) bool) error {
	for _, r := range q.List(from) {
		if r.State != Unknown && (r.State != Waiting || !keep(&r)) {
			continue
		}
		it, err := q.find(r.ID)
		if err != nil {
			continue // it was forgotten meanwhile
		}
		if err := q.give(it, from, to); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queue) give(it *item, from, to string) error {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.req.State != Waiting && it.req.State != Unknown || it.req.Sandbox != from {
		return nil // somebody else has decided
	}
	err := q.set(it, it.req.State, func(r *Request) {
		r.Sandbox, r.Taken = to, r.Changed
		r.Changed, r.Note = it.req.Changed, it.req.Note
	})
	if err != nil {
		return err
	}
	q.room.add(from, -1, -it.req.Size)
	q.room.add(to, 1, it.req.Size)
	q.mu.Lock()
	defer q.mu.Unlock()
	it.sandbox = to
	return nil
}
