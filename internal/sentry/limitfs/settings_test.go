package limitfs

import (
	"bytes"
	"context"
	"testing"

	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/internal/sentry/savedtest"
)

func TestCanarySavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&FilesystemType{}, &ProcType{}, &Settings{}, &setting{}})
}

func TestSettings(t *testing.T) {
	s := &Settings{}
	for _, c := range []struct {
		name, written string
		ok            bool
		want          string
	}{
		{"vm/max_map_count", "262144\n", true, "262144"},
		{"vm/max_map_count", "many\n", false, "262144"},
		{"vm/max_map_count", "1 2\n", false, "262144"},
		{"vm/max_map_count", "\n", false, "262144"},
		{"vm/overcommit_memory", "1", true, "1"},
		{"fs/file-max", "9223372036854775807", true, "9223372036854775807"},
		{"kernel/sem", "250 256000 32 1024\n", true, "250\t256000\t32\t1024"},
		{"kernel/sem", "300", true, "300\t256000\t32\t1024"},
		{"kernel/core_pattern", "/tmp/core.%p\n", true, "/tmp/core.%p"},
		{"kernel/panic", "-1", true, "-1"},
	} {
		if ok := s.set(c.name, c.written); ok != c.ok || s.value(c.name) != c.want {
			t.Errorf("%s: writing %q: %t, and then %q", c.name, c.written, ok, s.value(c.name))
		}
	}
	var buf bytes.Buffer
	if _, err := state.Save(context.Background(), &buf, s); err != nil {
		t.Fatal(err)
	}
	var again Settings
	if _, err := state.Load(context.Background(), &buf, &again); err != nil {
		t.Fatal(err)
	}
	for name := range settingFiles {
		if again.value(name) != s.value(name) {
			t.Errorf("%s comes back as %q, not %q", name, again.value(name), s.value(name))
		}
	}
}
