package e2b

import (
	"net/http/httptest"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// TestAPIKeys in both forms are the same token.
func TestAPIKeys(t *testing.T) {
	const secret = "ramet_bdthetswcwlfylosca5zpbp76z62c5m3r5vxe22vj4d5qbvicdsq"
	key := httpwire.E2BKey(secret)
	if !strings.HasPrefix(key, "e2b_") || len(key) != len("e2b_")+64 {
		t.Errorf("the key is %s", key)
	}
	for _, given := range []string{secret, key} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-API-KEY", given)
		if got, err := secretOf(r); got != secret || err != nil {
			t.Errorf("%s: %s, %v", given, got, err)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	if _, err := secretOf(r); api.CodeOf(err) != api.CodeUnknownUser {
		t.Errorf("no key: %v", err)
	}
	r.Header.Set("X-API-KEY", "e2b_xyz")
	if _, err := secretOf(r); api.CodeOf(err) != api.CodeUnknownUser {
		t.Errorf("a key that is none: %v", err)
	}
}

// FuzzTarget finds a sandbox in the head of a request, which is one by its form, or refuses it.
func FuzzTarget(f *testing.F) {
	f.Add("aaaaaaaaaaaaaaaa", "49983", "")
	f.Add("", "", "3000-aaaaaaaaaaaaaaaa.example.org")
	f.Add("sbx_../../x", "0", "99999-aaaaaaaaaaaaaaaa.")
	f.Fuzz(func(t *testing.T, id, port, host string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("E2b-Sandbox-Id", id)
		r.Header.Set("E2b-Sandbox-Port", port)
		r.Host = host
		got, p, err := target(r)
		if err == nil && got != "" && (!api.IsID(api.KindSandbox, got) || p < 1 || p > 65535) {
			t.Errorf("%q, %d", got, p)
		}
	})
}
