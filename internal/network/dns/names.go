package dns

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// minKept and maxKept bound how long an address is remembered for a name, whatever the
	// time to live in the answer: programs keep addresses for longer than they may, and a
	// name that is judged once must not count for ever.
	minKept = 10 * time.Minute
	maxKept = 24 * time.Hour
	// maxPairs bounds the memory of one sandbox; the pairs that end first are forgotten.
	maxPairs = 4096
)

// Names remembers which addresses a sandbox was given for which names. It is safe for
// concurrent use.
type Names struct {
	now func() time.Time // time.Now but in tests

	mu    sync.Mutex
	known map[netip.Addr]map[string]time.Time // until when; guarded by mu
	pairs int                                 // guarded by mu
}

// NewNames returns an empty memory.
func NewNames() *Names { return &Names{now: time.Now} }

// Of returns the names that the address was given out for, in alphabetical order.
func (n *Names) Of(addr netip.Addr) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	var names []string
	for name, until := range n.known[addr] {
		if now.Before(until) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Add remembers that the address was given out for the name.
func (n *Names) Add(name string, addr netip.Addr, ttl time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.put(name, addr, n.now().Add(min(max(ttl, minKept), maxKept)))
}

// put remembers a pair until a time. The caller holds mu.
func (n *Names) put(name string, addr netip.Addr, until time.Time) {
	if n.pairs >= maxPairs {
		n.forget(n.now())
	}
	names := n.known[addr]
	if names == nil {
		if n.known == nil {
			n.known = map[netip.Addr]map[string]time.Time{}
		}
		names = map[string]time.Time{}
		n.known[addr] = names
	}
	old, known := names[name]
	if !known {
		n.pairs++
	}
	if until.After(old) {
		names[name] = until
	}
}

// Len returns how many pairs there are.
func (n *Names) Len() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pairs
}

// Inherit adds what another sandbox was given, for as long as it is remembered there, as far as keep lets
// it: programs that were forked keep the addresses that they had looked up before.
func (n *Names) Inherit(from *Names, keep func(name string, addr netip.Addr) bool) {
	type pair struct {
		name string
		addr netip.Addr
	}
	pairs := map[pair]time.Time{}
	now := n.now()
	from.mu.Lock()
	for addr, names := range from.known {
		for name, until := range names {
			if now.Before(until) {
				pairs[pair{name, addr}] = until
			}
		}
	}
	from.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	for p, until := range pairs {
		if keep(p.name, p.addr) {
			n.put(p.name, p.addr, until)
		}
	}
}

// forget removes what is over, and if that is little, what ends first: a quarter of all.
func (n *Names) forget(now time.Time) {
	ends := make([]time.Time, 0, n.pairs)
	for _, names := range n.known {
		ends = slices.AppendSeq(ends, maps.Values(names))
	}
	slices.SortFunc(ends, time.Time.Compare)
	limit := ends[len(ends)/4]
	if now.After(limit) {
		limit = now
	}
	for addr, names := range n.known {
		maps.DeleteFunc(names, func(_ string, until time.Time) bool {
			if until.After(limit) {
				return false
			}
			n.pairs--
			return true
		})
		if len(names) == 0 {
			delete(n.known, addr)
		}
	}
}
