package process

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// addressAge is how long the addresses of the host are believed.
const addressAge = 5 * time.Second

// ownAddresses are the addresses of the host's interfaces. They are read again when they are asked for
// and old: a gateway that rests does not wake for it.
type ownAddresses struct {
	mu    sync.Mutex // of refresh
	known atomic.Pointer[addressSet]
}

type addressSet struct {
	read  time.Time
	addrs map[netip.Addr]bool
}

// has reports whether the host has the address.
func (o *ownAddresses) has(a netip.Addr) bool {
	set := o.known.Load()
	if time.Since(set.read) > addressAge && o.refresh() == nil {
		set = o.known.Load() // else the old ones are as good as any
	}
	return set.addrs[a.Unmap().WithZone("")]
}

func (o *ownAddresses) refresh() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if set := o.known.Load(); set != nil && time.Since(set.read) <= addressAge {
		return nil // another goroutine was faster
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("read the addresses of the host: %w", err)
	}
	set := &addressSet{read: time.Now(), addrs: map[netip.Addr]bool{}}
	for _, a := range all {
		if n, is := a.(*net.IPNet); is {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				set.addrs[addr.Unmap()] = true
			}
		}
	}
	o.known.Store(set)
	return nil
}
