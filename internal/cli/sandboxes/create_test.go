package sandboxes

import (
	"reflect"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
)

func TestRequireNamesEveryLayer(t *testing.T) {
	usage := New(session.New(console.Streams{}, "", nil)).CreateCommand().Flags().Lookup("require").Usage
	for field := range reflect.TypeFor[api.Isolation]().Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); field.Type == reflect.TypeFor[api.Layer]() && !strings.Contains(usage, name) {
			t.Errorf("%s is not in %q", name, usage)
		}
	}
}
