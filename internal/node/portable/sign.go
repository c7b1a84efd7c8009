package portable

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/artefact"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// signer has the secret that the keys of all tenants are derived from. It is made when it is
// first needed. It is safe for concurrent use.
type signer struct {
	path string
	fs   hostfs.FS

	mu sync.Mutex
}

// secretBytes is the length of the secret.
const secretBytes = 32

// key returns the key of a tenant.
func (s *signer) key(tenant string) (ed25519.PrivateKey, error) {
	secret, err := s.secret()
	if err != nil {
		return nil, fmt.Errorf("read the key that signs snapshots: %w", err)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("ramet snapshots of tenant " + tenant))
	return ed25519.NewKeyFromSeed(mac.Sum(nil)), nil
}

func (s *signer) secret() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := os.ReadFile(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case len(b) != secretBytes:
		return nil, api.Errorf(api.CodeCorrupt, "%s has %d bytes, not %d: remove it for a new key", s.path, len(b), secretBytes)
	default:
		return b, nil
	}
	b = make([]byte, secretBytes)
	rand.Read(b) // never fails: crypto/rand ends the program instead
	return b, hostfs.Replace(s.fs, s.path, ".signing-key-", func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// SigningKey returns the key by which the tenant of the caller signs snapshots.
func (p *Porter) SigningKey(ctx context.Context) (*api.SigningKey, error) {
	caller := access.From(ctx)
	if err := caller.Known(); err != nil {
		return nil, err
	}
	key, err := p.signer.key(caller.Tenant)
	if err != nil {
		return nil, err
	}
	return &api.SigningKey{Key: artefact.FormatKey(key.Public().(ed25519.PublicKey))}, nil
}

// sign signs a manifest for the tenant of the caller, if that is asked for.
func (p *Porter) sign(ctx context.Context, asked bool, manifest []byte) (string, error) {
	if !asked {
		return "", nil
	}
	caller := access.From(ctx)
	if caller.Bound() || caller.By != "" {
		return "", api.Errorf(api.CodeForbidden, "sign: this token is bound to sandboxes, and the key is the tenant's: use one that is not bound")
	}
	key, err := p.signer.key(caller.Tenant)
	if err != nil {
		return "", err
	}
	return artefact.Sign(key, artefact.Digest(manifest)), nil
}

// maxTrust bounds the keys that a request trusts.
const maxTrust = 64

// ValidTrust checks the keys of a request.
func ValidTrust(keys []string) error {
	if len(keys) > maxTrust {
		return api.Invalid("trust", "%d keys are trusted: %d are allowed", len(keys), maxTrust)
	}
	for _, k := range keys {
		if _, err := artefact.ParseKey(k); err != nil {
			return err
		}
	}
	return nil
}
