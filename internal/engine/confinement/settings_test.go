package confinement

import (
	"os"
	"path/filepath"
	"testing"
)

func TestForbiddingSysctl(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{nil, ""},
		{map[string]string{"kernel/unprivileged_userns_clone": "1\n", "user/max_user_namespaces": "62000\n"}, ""},
		{map[string]string{"kernel/unprivileged_userns_clone": "0\n"}, "kernel.unprivileged_userns_clone"},
		{map[string]string{"user/max_user_namespaces": "0\n"}, "user.max_user_namespaces"},
		{map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1\n"}, "kernel.apparmor_restrict_unprivileged_userns"},
		{map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "?\n"}, ""},
	} {
		root := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(root, "proc/sys", name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := ForbiddingSysctl(root); got != c.want {
			t.Errorf("%v: %q, want %q", c.files, got, c.want)
		}
	}
}
