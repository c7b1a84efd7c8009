// Package savedtest checks the types that a sentry saves with the kernel of a guest. It is
// for tests only, and must never know what the types mean.
package savedtest

import (
	"bytes"
	"context"
	"reflect"
	"testing"

	"gvisor.dev/gvisor/pkg/cpuid"
	"gvisor.dev/gvisor/pkg/state"
)

// Savable is what gVisor's state package asks of the types of a saved state.
type Savable interface {
	StateTypeName() string
	StateFields() []string
	StateSave(state.Sink)
	StateLoad(context.Context, state.Source)
}

// Check checks the methods that are written by hand here and generated in gVisor: that the
// names are those of the types and fields, and that what is saved comes back. embedded are
// the names of saved fields that are not fields of the types themselves.
func Check(t *testing.T, types []Savable, embedded ...string) {
	cpuid.Initialize()
	for _, x := range types {
		typ := reflect.TypeOf(x).Elem()
		t.Run(typ.Name(), func(t *testing.T) {
			if want := typ.PkgPath() + "." + typ.Name(); x.StateTypeName() != want {
				t.Errorf("it is saved as %q, not %q", x.StateTypeName(), want)
			}
			inside := map[string]bool{}
			for _, f := range embedded {
				inside[f] = true
			}
			for _, f := range x.StateFields() {
				if _, ok := typ.FieldByName(f); !ok && !inside[f] {
					t.Errorf("it has no field %s", f)
				}
			}
			var buf bytes.Buffer
			if _, err := state.Save(context.Background(), &buf, x); err != nil {
				t.Fatalf("save: %v.\nIs it registered, and is the state.Sink's contract what it was?", err)
			}
			back := reflect.New(typ).Interface()
			if _, err := state.Load(context.Background(), &buf, back); err != nil {
				t.Fatalf("load: %v", err)
			}
		})
	}
}
