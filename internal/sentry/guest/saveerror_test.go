package guest

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/mountfd"
	"gvisor.dev/gvisor/pkg/state"
)

// stranger is a type that nobody has told how to save.
type stranger struct{ value *int }

// TestErrorsOfSavingHaveNoStack saves what cannot be saved.
func TestErrorsOfSavingHaveNoStack(t *testing.T) {
	object := struct{ held *stranger }{&stranger{new(int)}}
	for name, root := range map[string]any{"a field": &object.held, "an interface": ptr(any(object.held))} {
		_, err := state.Save(context.Background(), &bytes.Buffer{}, root)
		if err == nil || !strings.Contains(err.Error(), "goroutine ") {
			t.Fatalf("%s: gVisor's error has no stack any more: %v", name, err)
		}
		reason := withoutStack(fmt.Errorf("save: %w", err))
		if text := reason.Error(); strings.Contains(text, "\n") || strings.Contains(text, "goroutine") || len(text) > 200 {
			t.Errorf("%s: the reason is %q", name, text)
		}
		if got := unsavableType(reason); got != "guest.stranger" {
			t.Errorf("%s: the type of %q is %q", name, reason, got)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func TestKeepsType(t *testing.T) {
	type impl struct{ _ struct{ held *stranger } }
	for _, c := range []struct {
		of   any
		name string
		want bool
	}{
		{&mountfd.Fd{}, "mountfd.Fd", true},
		{&impl{}, "guest.stranger", true},
		{&impl{}, "mountfd.Fd", false},
	} {
		if got := keepsType(reflect.TypeOf(c.of), c.name, keptDepth); got != c.want {
			t.Errorf("%T keeps %s: %t", c.of, c.name, got)
		}
	}
}
