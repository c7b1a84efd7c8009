package networks

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/node/reach"
)

// maxPrepared is how many documents that treat requests are kept decrypted. The children of a fork have
// one together.
const maxPrepared = 64

// prepared is what a registration needs that treats requests, decrypted.
type prepared struct {
	authority secrets.Value
	secrets   []gateway.Secret
}

// preparations keeps what registrations need in the memory of the daemon, so that a hundred children do
// not have the same key decrypted a hundred times. Nobody clears the values, which registrations share;
// they are forgotten when a secret changes. It is safe for concurrent use.
type preparations struct {
	prepare func(tenant string, k *reach.Kept, spec policy.Spec) (*prepared, error)

	mu   sync.Mutex // held while something is prepared, so that nothing is that a change has made old
	kept *lru.Cache[[sha256.Size]byte, *prepared]
	// changes counts the changes of secrets.
	changes atomic.Uint64
}

func newPreparations(vault *secrets.Store) (*preparations, error) {
	kept, err := lru.New[[sha256.Size]byte, *prepared](maxPrepared)
	prepare := func(tenant string, k *reach.Kept, spec policy.Spec) (*prepared, error) {
		return prepare(vault, tenant, k, spec)
	}
	return &preparations{prepare: prepare, kept: kept}, err
}

// of returns what is needed for a policy of a tenant, and has it made unless it is there.
func (p *preparations) of(tenant string, k *reach.Kept, spec policy.Spec) (*prepared, error) {
	text, err := json.Marshal([]any{tenant, k.Authority, k.Placeholders, spec})
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(text)
	p.mu.Lock()
	defer p.mu.Unlock()
	if found, ok := p.kept.Get(key); ok {
		return found, nil
	}
	made, err := p.prepare(tenant, k, spec)
	if err == nil {
		p.kept.Add(key, made)
	}
	return made, err
}

// forget is called when a secret has changed.
func (p *preparations) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept.Purge()
	p.changes.Add(1)
}

// prepare decrypts the authority of a tree and the secrets that a policy puts into requests. A secret that
// is gone is left out: names that need it are not reached.
func prepare(vault *secrets.Store, tenant string, k *reach.Kept, spec policy.Spec) (*prepared, error) {
	text, err := vault.Unseal(k.Authority)
	if err != nil {
		return nil, fmt.Errorf("read the authority of a tree: %w", err)
	}
	p := &prepared{authority: secrets.NewValue(string(text))}
	clear(text)
	compiled, err := policy.Compile(spec, notOwn)
	if err != nil {
		return nil, err
	}
	for _, name := range secretsIn(compiled) {
		info, value, err := vault.Get(tenant, name)
		if api.CodeOf(err) == api.CodeNotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		p.secrets = append(p.secrets, gateway.Secret{Name: name, Value: value, Placeholder: k.Placeholders[name], Binding: info.Binding})
	}
	return p, nil
}
