package apitest

import (
	"context"
	"sync"

	"ramet.dev/ramet/internal/server/rest"
)

// Answers keeps answers in memory.
type Answers struct {
	mu   sync.Mutex
	kept map[string]rest.Answer
}

// Answer implements rest.AnswerService.
func (s *Answers) Answer(_ context.Context, key string) (*rest.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.kept[key]; ok {
		return &a, nil
	}
	return nil, nil
}

// KeepAnswer implements rest.AnswerService.
func (s *Answers) KeepAnswer(_ context.Context, key string, a rest.Answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[string]rest.Answer{}
	}
	s.kept[key] = a
	return nil
}

// ForgetAnswer implements rest.AnswerService.
func (s *Answers) ForgetAnswer(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, key)
	return nil
}

// Kept returns all that is kept.
func (s *Answers) Kept() []rest.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []rest.Answer
	for _, a := range s.kept {
		all = append(all, a)
	}
	return all
}
