package networks

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/registries"
)

// HostRegistries is the name of the profile that is derived from what this host is set up with.
const HostRegistries = "host-registries"

const (
	// registriesKept is how long a derived profile is used.
	registriesKept = 10 * time.Minute
	// registriesTime bounds how long it is made.
	registriesTime = 30 * time.Second
)

// Registries derives the profile of the package registries that a host is set up with. It is safe
// for concurrent use.
type Registries struct {
	system *registries.System
	client *http.Client
	log    *slog.Logger

	turn chan struct{} // of the one that derives
	mu   sync.Mutex
	made *api.NetworkPolicy // guarded by mu
	at   time.Time          // guarded by mu
}

// NewRegistries returns what derives the profile of this host, and of the user whose home directory
// home is.
func NewRegistries(home string, log *slog.Logger) *Registries {
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}
	return &Registries{system: registries.Host(home, os.Environ()), client: client, log: log, turn: make(chan struct{}, 1)}
}

// Derive implements profiles.Derived. It asks tools and registries, and takes seconds the first time.
func (r *Registries) Derive(ctx context.Context) (*api.NetworkPolicy, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p := r.kept(); p != nil {
		return p, nil
	}
	ctx, cancel := context.WithTimeout(ctx, registriesTime)
	defer cancel()
	found := registries.Derive(ctx, r.system)
	registries.Follow(ctx, r.client, found)
	r.client.CloseIdleConnections() // they are not asked again for minutes
	for _, p := range found.Problems {
		r.log.Info("find package registries", "problem", p)
	}
	rules := found.Rules()
	if len(rules) == 0 {
		return nil, api.Errorf(api.CodeUnavailable, "no package registry is known to this host: none of apt, pip, npm, cargo, go and Maven is set up")
	}
	p := &api.NetworkPolicy{Allow: rules}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made, r.at = p, time.Now()
	return p, nil
}

func (r *Registries) kept() *api.NetworkPolicy {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) > registriesKept {
		return nil
	}
	return r.made
}
