package grant

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

const (
	box   = "sbx_aaaaaaaaaaaaaaaa"
	other = "sbx_aaaaaaaaaaaaaaab"
)

// keyring are keys by their names, of tenant acme.
type keyring map[string]api.Scope

func (k keyring) session(key string) *service.Session {
	return &service.Session{Key: key, Caller: access.Caller{Tenant: "acme", Scope: k[key], Token: "tok_" + key}}
}

func (k keyring) SessionOf(_ context.Context, key string) (*service.Session, error) {
	if _, ok := k[key]; !ok {
		return nil, api.Errorf(api.CodeUnknownUser, "no such key")
	}
	return k.session(key), nil
}

func (k keyring) Sessions(_ context.Context, tenant string) (all []*service.Session) {
	for key := range k {
		if tenant == "acme" {
			all = append(all, k.session(key))
		}
	}
	return all
}

func newGrants(k keyring) *Grants { return New(bytes.Repeat([]byte{7}, keyBytes), k) }

// TestTokens are each of one kind, for one thing, of one key, and made with one secret.
func TestTokens(t *testing.T) {
	keys := keyring{"a.1": api.ScopeAdmin, "e.1": api.ScopeExec, "r.1": api.ScopeRead}
	g := newGrants(keys)
	token := g.Token(keys.session("e.1"), Access, box)
	if s, err := g.Check(t.Context(), Access, box, token); err != nil || s.Key != "e.1" {
		t.Errorf("%+v, %v", s, err)
	}
	for what, wrong := range map[string]string{
		"empty": "", "of another sandbox": g.Token(keys.session("e.1"), Access, other), "of another key": "a.1" + token[3:], "of another kind": g.Token(keys.session("a.1"), Volume, box),
		"of another secret": New(bytes.Repeat([]byte{8}, keyBytes), keys).Token(keys.session("e.1"), Access, box), "cut": token[:len(token)-1], "a key": "e.1", "a key with a dot": "e.1.",
	} {
		if s, err := g.Check(t.Context(), Access, box, wrong); api.CodeOf(err) != api.CodeUnknownUser {
			t.Errorf("a token that is %s: %+v, %v", what, s, err)
		}
	}
	for key, want := range map[string]string{"r.1": "", "e.1": "access", "a.1": "access volume"} {
		var got []string
		for _, kind := range []Kind{Access, Volume} {
			if g.Token(keys.session(key), kind, box) != "" {
				got = append(got, string(kind))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("key %s gives %v, want %s", key, got, want)
		}
	}
	if g.Token(nil, Access, box) != "" || g.Token(&service.Session{Caller: access.Owner(0)}, Access, box) != "" {
		t.Error("there is a token without a key")
	}
}

// TestTokensEndWithTheirKey, and when the key loses the scope.
func TestTokensEndWithTheirKey(t *testing.T) {
	keys := keyring{"a.1": api.ScopeAdmin}
	g, now := newGrants(keys), time.Unix(1000, 0)
	token, up := g.Token(keys.session("a.1"), Access, box), g.Upload(keys.session("a.1"), "hash", now)
	signedURL := url.Values{"path": {"p"}, "signature": {signature("p", "read", "", token, "")}}
	check := func(valid bool) {
		t.Helper()
		_, err := g.Check(t.Context(), Access, box, token)
		_, uerr := g.CheckUpload(t.Context(), up, "hash", now)
		_, _, serr := g.Signer(t.Context(), signedURL, "read", []Sandbox{{"other", other}, {"acme", other}, {"acme", box}}, now)
		for what, err := range map[string]error{"token": err, "upload": uerr, "signed URL": serr} {
			if (err == nil) != valid || err != nil && api.CodeOf(err) != api.CodeUnknownUser {
				t.Errorf("%s: %v, want valid %t", what, err, valid)
			}
		}
	}
	check(true)
	keys["a.1"] = api.ScopeRead
	check(false)
	delete(keys, "a.1")
	check(false)
}

// TestUploads are of one archive, and end.
func TestUploads(t *testing.T) {
	keys := keyring{"a.1": api.ScopeAdmin}
	g, now := newGrants(keys), time.Unix(1000, 0)
	q := g.Upload(keys.session("a.1"), "hash", now)
	if _, err := g.CheckUpload(t.Context(), q, "other", now); err == nil {
		t.Error("another archive can be sent")
	}
	if _, err := g.CheckUpload(t.Context(), q, "hash", now.Add(uploadTime+time.Second)); err == nil {
		t.Error("the URL has no end")
	}
	q.Set("until", "99999999999")
	if _, err := g.CheckUpload(t.Context(), q, "hash", now); err == nil {
		t.Error("the end can be changed")
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
		if ok, err := isSigned(q(expires), "read", token), expired(q(expires), now); !ok || (err == nil) != valid {
			t.Errorf("until %q: %t, %v", expires, ok, err)
		}
	}
	for _, change := range []func(url.Values){
		func(v url.Values) { v.Set("path", "q") }, func(v url.Values) { v.Set("username", "") }, func(v url.Values) { v.Set("signature_expiration", "5000") },
		func(v url.Values) { v.Del("signature") },
	} {
		v := q("2000")
		change(v)
		if isSigned(v, "read", token) {
			t.Errorf("%v is signed", v)
		}
	}
	if isSigned(q(""), "write", token) {
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

// FuzzSignature accepts nothing but what the token has signed.
func FuzzSignature(f *testing.F) {
	f.Add("path=a&signature=v1_x&signature_expiration=1")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		want := signature(q.Get("path"), "read", q.Get("username"), "token", q.Get("signature_expiration"))
		if isSigned(q, "read", "token") && q.Get("signature") != want {
			t.Errorf("%q is signed", query)
		}
	})
}
