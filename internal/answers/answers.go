package answers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

const (
	// Lifetime is how long an answer is kept.
	Lifetime = 24 * time.Hour
	// most bounds the answers, the oldest of which go first.
	most = 20000
)

// Book is all answers. It is safe for concurrent use.
type Book struct {
	store *store.Store
	now   func() time.Time
	most  int

	mu    sync.Mutex
	known map[string]time.Time
	order []kept // oldest first; some are forgotten already, but not most
}

// slack is how many forgotten answers may be in the order in any case.
const slack = 1000

type kept struct {
	key string
	at  time.Time
}

// Open reads which answers there are, and forgets old ones.
func Open(ctx context.Context, s *store.Store) (*Book, error) {
	b := &Book{store: s, now: time.Now, most: most, known: map[string]time.Time{}}
	err := s.Each(ctx, store.Answers, func(key string, doc []byte) error {
		var a httpapi.Answer
		if err := json.Unmarshal(doc, &a); err != nil {
			return sandbox.Errorf(sandbox.CodeCorrupt, "record of answer %s: %w", key, err)
		}
		b.known[key] = a.At
		b.order = append(b.order, kept{key, a.At})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read answers: %w", err)
	}
	slices.SortFunc(b.order, func(x, y kept) int { return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.key, y.key)) })
	return b, s.Apply(ctx, b.outdated()...)
}

// outdated forgets what is too old or too much, and returns what is to be deleted.
func (b *Book) outdated() (changes []store.Change) {
	for len(b.order) > 0 {
		first := b.order[0]
		gone := b.gone(first)
		if !gone && len(b.known) <= b.most && b.now().Sub(first.at) < Lifetime {
			break
		}
		b.order = b.order[1:]
		if !gone {
			delete(b.known, first.key)
			changes = append(changes, store.Change{Table: store.Answers, ID: first.key})
		}
	}
	return changes
}

// Answer implements httpapi.AnswerService.
func (b *Book) Answer(ctx context.Context, key string) (*httpapi.Answer, error) {
	b.mu.Lock()
	at, ok := b.known[key]
	b.mu.Unlock()
	if !ok || b.now().Sub(at) >= Lifetime {
		return nil, nil
	}
	var a httpapi.Answer
	found, err := b.store.Get(ctx, store.Answers, key, &a)
	if err != nil || !found {
		return nil, err
	}
	return &a, nil
}

// KeepAnswer implements httpapi.AnswerService.
func (b *Book) KeepAnswer(ctx context.Context, key string, a httpapi.Answer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	a.At = b.now().UTC().Round(0)
	changes := append(b.outdated(), store.Change{Table: store.Answers, ID: key, Doc: a})
	if err := b.store.Apply(ctx, changes...); err != nil {
		return fmt.Errorf("keep answer: %w", err)
	}
	b.known[key] = a.At
	if len(b.order) > 2*len(b.known)+slack {
		b.order = slices.DeleteFunc(b.order, b.gone)
	}
	b.order = append(b.order, kept{key, a.At})
	return nil
}

// gone reports whether an answer was forgotten, or written again.
func (b *Book) gone(k kept) bool {
	at, ok := b.known[k.key]
	return !ok || !at.Equal(k.at)
}

// ForgetAnswer implements httpapi.AnswerService.
func (b *Book) ForgetAnswer(ctx context.Context, key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.known, key)
	return b.store.Apply(ctx, store.Change{Table: store.Answers, ID: key})
}
