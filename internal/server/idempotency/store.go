package idempotency

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/storage/store"
)

const (
	// lifetime is how long an answer is kept.
	lifetime = 24 * time.Hour
	// most bounds the answers of one tenant. The oldest are deleted first, so that no tenant
	// displaces the answers of another.
	most = 20000
)

// Store stores answers. It is safe for concurrent use.
type Store struct {
	store *store.Store
	now   func() time.Time
	most  int

	mu     sync.Mutex
	known  map[string]mark
	shares map[string]*share // by tenant
}

// mark is the part of an answer that is kept in memory.
type mark struct {
	tenant string
	at     time.Time
}

// share is the answers of one tenant.
type share struct {
	n     int    // those that are known
	order []kept // oldest first; some are forgotten already, but not most
}

// slack is how many forgotten answers may be in an order in any case.
const slack = 1000

type kept struct {
	key string
	at  time.Time
}

// Open reads the index of the stored answers, and deletes old ones.
func Open(ctx context.Context, s *store.Store) (*Store, error) {
	b := &Store{store: s, now: time.Now, most: most, known: map[string]mark{}, shares: map[string]*share{}}
	err := s.Each(ctx, store.Answers, func(key string, doc []byte) error {
		var a service.Answer
		if err := json.Unmarshal(doc, &a); err != nil {
			return api.Errorf(api.CodeCorrupt, "record of answer %s: %w", key, err)
		}
		b.add(key, mark{a.Tenant, a.At})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read answers: %w", err)
	}
	for _, of := range b.shares {
		slices.SortFunc(of.order, func(x, y kept) int { return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.key, y.key)) })
	}
	return b, s.Apply(ctx, b.outdated()...)
}

// add adds an answer to the index, in place of an earlier one with its key.
func (b *Store) add(key string, m mark) {
	b.drop(key)
	of := b.shares[m.tenant]
	if of == nil {
		of = &share{}
		b.shares[m.tenant] = of
	}
	b.known[key] = m
	of.n++
	if len(of.order) > 2*of.n+slack {
		of.order = slices.DeleteFunc(of.order, b.gone)
	}
	of.order = append(of.order, kept{key, m.at})
}

// drop removes an answer from the index.
func (b *Store) drop(key string) {
	if m, ok := b.known[key]; ok {
		b.shares[m.tenant].n--
		delete(b.known, key)
	}
}

// outdated drops the answers that are too old, or too many for one tenant, and returns the
// changes that delete them.
func (b *Store) outdated() (changes []store.Change) {
	for tenant, of := range b.shares {
		for len(of.order) > 0 {
			first := of.order[0]
			gone := b.gone(first)
			if !gone && of.n <= b.most && b.now().Sub(first.at) < lifetime {
				break
			}
			of.order = of.order[1:]
			if !gone {
				b.drop(first.key)
				changes = append(changes, store.Change{Table: store.Answers, ID: first.key})
			}
		}
		if len(of.order) == 0 {
			delete(b.shares, tenant)
		}
	}
	return changes
}

// Answer implements service.Idempotency.
func (b *Store) Answer(ctx context.Context, key string) (*service.Answer, error) {
	b.mu.Lock()
	m, ok := b.known[key]
	b.mu.Unlock()
	if !ok || b.now().Sub(m.at) >= lifetime {
		return nil, nil
	}
	var a service.Answer
	found, err := b.store.Get(ctx, store.Answers, key, &a)
	if err != nil || !found {
		return nil, err
	}
	return &a, nil
}

// KeepAnswer implements service.Idempotency.
func (b *Store) KeepAnswer(ctx context.Context, key string, a service.Answer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.At = b.now().UTC().Round(0)
	changes := append(b.outdated(), store.Change{Table: store.Answers, ID: key, Doc: a})
	if err := b.store.Apply(ctx, changes...); err != nil {
		return fmt.Errorf("keep answer: %w", err)
	}
	b.add(key, mark{a.Tenant, a.At})
	return nil
}

// gone reports whether an answer was forgotten, or written again.
func (b *Store) gone(k kept) bool {
	m, ok := b.known[k.key]
	return !ok || !m.at.Equal(k.at)
}

// ForgetAnswer implements service.Idempotency.
func (b *Store) ForgetAnswer(ctx context.Context, key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(key)
	return b.store.Apply(ctx, store.Change{Table: store.Answers, ID: key})
}
