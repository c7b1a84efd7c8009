package host

import (
	"sync"

	"ramet.dev/ramet/internal/network/gateway"
)

// renewals are registrations that sandboxes are to have. Whoever has the turn of the Host next takes them
// over: their callers may leave while another one waits for the gateway. The zero value has none.
type renewals struct {
	mu  sync.Mutex
	all []gateway.Registration
}

// add adds the registration that a sandbox is to have from now on.
func (l *renewals) add(r gateway.Registration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r)
}

// waiting reports whether there are any.
func (l *renewals) waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all) > 0
}

// take takes them all, in the order in which they came.
func (l *renewals) take() []gateway.Registration {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}
