package e2b

import (
	"bytes"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

func newTokens() keys { return bytes.Repeat([]byte{7}, keyBytes) }

// TestAccessTokens are each for one sandbox of one tenant, and for one server's key.
func TestAccessTokens(t *testing.T) {
	s := newTokens()
	const id = "sbx_aaaaaaaaaaaaaaaa"
	token := s.accessToken("acme", id)
	if tenant, err := s.tenantOf(id, token); err != nil || tenant != "acme" {
		t.Errorf("%q, %v", tenant, err)
	}
	_, mac, _ := strings.Cut(token, ".")
	for what, wrong := range map[string]string{
		"empty": "", "of another sandbox": s.accessToken("acme", "sbx_aaaaaaaaaaaaaaab"), "of another tenant": s.accessToken("other", id)[:9] + token[9:],
		"of another key": keys(bytes.Repeat([]byte{8}, keyBytes)).accessToken("acme", id), "cut": token[:len(token)-1], "its MAC": mac, "not base64": "!." + mac,
	} {
		if tenant, err := s.tenantOf(id, wrong); api.CodeOf(err) != api.CodeUnknownUser {
			t.Errorf("a token that is %s: %q, %v", what, tenant, err)
		}
	}
}

// TestSignatures has a vector that E2B's Python SDK makes.
func TestSignatures(t *testing.T) {
	const token = "token"
	if got := signature("/home/user/a.txt", "read", "user", token, "1700000000"); got != "v1_oi+JMwo0fKyp3VBFSSBGMPzPuRvThDduSlyHJH/cJHQ" {
		t.Errorf("the signature is %s", got)
	}
	now := time.Unix(1000, 0)
	q := func(expires string) url.Values {
		v := url.Values{"path": {"p"}, "username": {"u"}, "signature": {signature("p", "read", "u", token, expires)}}
		if expires != "" {
			v.Set("signature_expiration", expires)
		}
		return v
	}
	for expires, valid := range map[string]bool{"": true, "1000": true, "1001": true, "999": false, "x": false} {
		if err := signed(q(expires), "read", token, now); (err == nil) != valid {
			t.Errorf("until %q: %v", expires, err)
		}
	}
	for _, change := range []func(url.Values){
		func(v url.Values) { v.Set("path", "q") }, func(v url.Values) { v.Set("username", "") }, func(v url.Values) { v.Set("signature_expiration", "5000") },
		func(v url.Values) { v.Del("signature") },
	} {
		v := q("2000")
		change(v)
		if signed(v, "read", token, now) == nil {
			t.Errorf("%v is signed", v)
		}
	}
	if signed(q(""), "write", token, now) == nil {
		t.Error("a signature for reading is one for writing")
	}
}

// TestKeyIsKept in a file that only its owner reads.
func TestKeyIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	first, err := Key(file)
	if err != nil || len(first) != keyBytes {
		t.Fatalf("%x, %v", first, err)
	}
	if again, err := Key(file); err != nil || !bytes.Equal(first, again) {
		t.Errorf("%x, and then %x, %v", first, again, err)
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	if err := os.WriteFile(file, first[:5], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Key(file); api.CodeOf(err) != api.CodeCorrupt {
		t.Errorf("a key that is cut: %v", err)
	}
}

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

// FuzzSignature accepts nothing but what the token has signed.
func FuzzSignature(f *testing.F) {
	f.Add("path=a&signature=v1_x&signature_expiration=1")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		want := signature(q.Get("path"), "read", q.Get("username"), "token", q.Get("signature_expiration"))
		if err := signed(q, "read", "token", time.Unix(0, 0)); err == nil && q.Get("signature") != want {
			t.Errorf("%q is signed", query)
		}
	})
}
