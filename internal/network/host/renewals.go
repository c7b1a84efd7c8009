package host

import (
	"sync"

	"ramet.dev/ramet/internal/network/gateway"
)

// renewals are what bounds tenants, registrations that sandboxes are to have, and sandboxes that have ended. Whoever has the
// turn of the Host next takes them over: their callers may leave while another one waits for the gateway.
// The zero value has none.
type renewals struct {
	mu      sync.Mutex
	tenants []gateway.Tenant
	all     []gateway.Registration
	ended   []string
}

// bound adds what bounds a tenant from now on.
func (l *renewals) bound(to gateway.Tenant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tenants = append(l.tenants, to)
}

// add adds the registration that a sandbox is to have from now on.
func (l *renewals) add(r gateway.Registration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r)
}

// end adds a sandbox that has ended.
func (l *renewals) end(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, id)
}

// waiting reports whether there are any.
func (l *renewals) waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tenants)+len(l.all)+len(l.ended) > 0
}

// take takes them all, in the order in which they came. Nothing is renewed of a sandbox that has ended.
func (l *renewals) take() (tenants []gateway.Tenant, all []gateway.Registration, ended []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tenants, all, ended = l.tenants, l.all, l.ended
	l.tenants, l.all, l.ended = nil, nil, nil
	return tenants, all, ended
}
