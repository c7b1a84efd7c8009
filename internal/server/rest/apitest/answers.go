package apitest

import (
	"context"
	"sync"

	"ramet.dev/ramet/internal/service"
)

// Answers keeps answers in memory.
type Answers struct {
	mu   sync.Mutex
	kept map[string]service.Answer
}

// Answer implements service.Idempotency.
func (s *Answers) Answer(_ context.Context, key string) (*service.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.kept[key]; ok {
		return &a, nil
	}
	return nil, nil
}

// KeepAnswer implements service.Idempotency.
func (s *Answers) KeepAnswer(_ context.Context, key string, a service.Answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[string]service.Answer{}
	}
	s.kept[key] = a
	return nil
}

// ForgetAnswer implements service.Idempotency.
func (s *Answers) ForgetAnswer(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, key)
	return nil
}

// Kept returns all that is kept.
func (s *Answers) Kept() []service.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []service.Answer
	for _, a := range s.kept {
		all = append(all, a)
	}
	return all
}
