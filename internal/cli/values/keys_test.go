package values

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParseKeys(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got, err := ParseKeys("trust", []string{"ramet-ed25519:a", file("# team\nramet-ed25519:b # Ann\n\nramet-ed25519:c")})
	if want := []string{"ramet-ed25519:a", "ramet-ed25519:b", "ramet-ed25519:c"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"", "/no/such/file", file(""), file("# nothing"), file("x")} {
		if got, err := ParseKeys("trust", []string{bad}); err == nil {
			t.Errorf("%q is %q", bad, got)
		}
	}
}
