package artefact

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

func TestSignatures(t *testing.T) {
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	mine := FormatKey(key.Public().(ed25519.PublicKey))
	other := FormatKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize)).Public().(ed25519.PublicKey))
	h := &Head{Digest: Digest([]byte("manifest"))}
	wantCode(t, h.Trusted([]string{mine}), api.CodeForbidden)
	s := Sign(key, h.Digest)
	h.Signatures = []string{"x", s}
	if err := h.Trusted([]string{other, mine}); err != nil {
		t.Error(err)
	}
	wantCode(t, h.Trusted([]string{other}), api.CodeForbidden)
	wantCode(t, (&Head{Digest: Digest(nil), Signatures: []string{s}}).Trusted([]string{mine}), api.CodeForbidden)
	proof := s[strings.LastIndexByte(s, ':'):]
	for _, bad := range []string{"", ":", mine, mine + ":", mine + ":AAAA", other + proof, s + "A", strings.Repeat("x", 1<<12)} {
		if key, ok := Signer(bad, h.Digest); ok {
			t.Errorf("%.80q is accepted of %s", bad, key)
		}
	}
	for _, bad := range []string{"", "ramet-ed25519:", "ramet-ed25519:AAAA", mine + "A", strings.TrimPrefix(mine, keyPrefix)} {
		if _, err := ParseKey(bad); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
}

func FuzzSignature(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	good := Sign(key, Digest(nil))
	f.Add(good)
	f.Fuzz(func(t *testing.T, s string) {
		if _, ok := Signer(s, Digest([]byte("other"))); ok {
			t.Fatal("accepted")
		}
		if key, ok := Signer(s, Digest(nil)); ok && !strings.HasPrefix(s, key) {
			t.Fatal("accepted for another key")
		}
	})
}
