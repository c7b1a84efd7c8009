package networks

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/node/reach"
)

// TestPreparations prepares once for all children of a fork, and again when a secret has changed.
func TestPreparations(t *testing.T) {
	p, err := newPreparations(nil)
	if err != nil {
		t.Fatal(err)
	}
	made, failed := 0, error(nil)
	p.prepare = func(string, *reach.Kept, policy.Spec) (*prepared, error) {
		made++
		return &prepared{authority: secrets.NewValue(fmt.Sprint(made))}, failed
	}
	ask := func(tenant, authority, placeholder string, rule api.NetworkTreatment) string {
		t.Helper()
		k := reach.Kept{Authority: []byte(authority), Placeholders: map[string]string{"KEY": placeholder}, RecordGroup: fmt.Sprint(made)}
		spec := policy.Spec{Document: api.NetworkPolicy{Rules: map[string]api.NetworkTreatment{"one.example.org": rule}}}
		got, err := p.of(tenant, &k, spec)
		if err != nil {
			t.Fatal(err)
		}
		return got.authority.Reveal()
	}
	var rule api.NetworkTreatment
	other := api.NetworkTreatment{Methods: []string{"GET"}}
	for i, got := range []string{
		ask("a", "x", "1", rule), ask("a", "x", "1", rule), ask("b", "x", "1", rule), ask("a", "y", "1", rule), ask("a", "x", "2", rule), ask("a", "x", "1", other), ask("a", "x", "1", rule),
	} {
		if want := []string{"1", "1", "2", "3", "4", "5", "1"}[i]; got != want {
			t.Errorf("answer %d is %s, not %s", i, got, want)
		}
	}
	p.forget()
	if got := ask("a", "x", "1", rule); got != "6" || p.changes.Load() != 1 {
		t.Errorf("after a change the answer is %s", got)
	}
	for i := range 2 * maxPrepared {
		ask("a", fmt.Sprint(i), "", rule)
	}
	if p.kept.Len() != maxPrepared {
		t.Errorf("%d are kept", p.kept.Len())
	}
	// What fails is not kept, and those who come at the same time have one made together.
	failed = errors.New("it fails")
	if _, err := p.of("c", &reach.Kept{}, policy.Spec{}); err != failed {
		t.Errorf("a failure gives %v", err)
	}
	made, failed = 0, nil
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { _, _ = p.of("c", &reach.Kept{}, policy.Spec{}) })
	}
	all.Wait()
	if made != 1 {
		t.Errorf("it was made %d times", made)
	}
}
