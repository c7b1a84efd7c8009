package held

import (
	"sync"

	"ramet.dev/ramet/api"
)

// room is how much of the limits each sandbox uses. It is safe for concurrent use.
type room struct {
	limits Limits

	mu  sync.Mutex
	use map[string]usage // by sandbox; those that use nothing are not in it
}

// usage is what counts against the limits of a sandbox.
type usage struct {
	requests int
	bytes    int64
}

// reserve makes room for a request, or for bytes of one whose body has body bytes then.
func (r *room) reserve(sandbox string, requests int, bytes, body int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.use[sandbox]
	switch {
	case u.requests+requests > r.limits.Requests:
		return api.Errorf(api.CodeLimit, "%d requests are held, which is the limit", r.limits.Requests)
	case body > r.limits.Body:
		return api.Errorf(api.CodeLimit, "the body has more than %d bytes, which is the limit", r.limits.Body)
	case u.bytes+bytes > r.limits.Bytes:
		return api.Errorf(api.CodeLimit, "held requests have %d bytes, which is the limit", r.limits.Bytes)
	}
	r.change(sandbox, requests, bytes)
	return nil
}

// add changes what a sandbox uses, whatever the limits are.
func (r *room) add(sandbox string, requests int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change(sandbox, requests, bytes)
}

func (r *room) change(sandbox string, requests int, bytes int64) {
	u := r.use[sandbox]
	u.requests += requests
	u.bytes += bytes
	if r.use[sandbox] = u; u == (usage{}) {
		delete(r.use, sandbox)
	}
}
