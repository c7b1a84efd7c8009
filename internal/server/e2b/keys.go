package e2b

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
)

// keyBytes is the length of the secret that access tokens are made with.
const keyBytes = 32

// Key returns the secret in a file, which is made if it does not exist.
func Key(file string) ([]byte, error) {
	key, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		fresh := make([]byte, keyBytes)
		_, _ = rand.Read(fresh) // it never fails
		var f *os.File
		if f, err = os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return nil, fmt.Errorf("make the key of access tokens: %w", err)
		}
		if _, err = f.Write(fresh); err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, errors.Join(fmt.Errorf("write the key of access tokens: %w", err), os.Remove(file))
		}
		return fresh, nil
	}
	if err == nil && len(key) != keyBytes {
		err = api.Errorf(api.CodeCorrupt, "%s has %d bytes, not %d: remove it, and clients need new access tokens", file, len(key), keyBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of access tokens: %w", err)
	}
	return key, nil
}

// keys makes and checks access tokens with a secret.
type keys []byte

// accessToken returns the token for the agent of a sandbox of a tenant. Whoever has it may do in that
// sandbox what commands can, as long as it lives.
func (k keys) accessToken(tenant, id string) string {
	mac := hmac.New(sha256.New, k)
	mac.Write([]byte("access\x00" + tenant + "\x00" + id))
	return base64.RawURLEncoding.EncodeToString([]byte(tenant)) + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// uploadKey returns what lets its holder upload files of a tenant's build.
func (k keys) uploadKey(tenant, hash string) string {
	mac := hmac.New(sha256.New, k)
	mac.Write([]byte("upload\x00" + tenant + "\x00" + hash))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

var errAccess = api.Errorf(api.CodeUnknownUser, "the access token is not that of the sandbox")

// tenantOf returns the tenant of a sandbox, whose access token is given.
func (k keys) tenantOf(id, token string) (tenant string, err error) {
	text, _, _ := strings.Cut(token, ".")
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || subtle.ConstantTimeCompare([]byte(k.accessToken(string(b), id)), []byte(token)) != 1 {
		return "", errAccess
	}
	return string(b), nil
}

// signature is what a URL for a file is signed with: it has the path, whether it is for reading, the user
// and, if it expires, when, and needs no header.
func signature(path, operation, user, token string, expires string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expires != "" {
		text += ":" + expires
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// signed reports whether the query of a request for a file is signed with an access token.
func signed(q url.Values, operation, token string, now time.Time) error {
	expires := q.Get("signature_expiration")
	want := signature(q.Get("path"), operation, q.Get("username"), token, expires)
	if subtle.ConstantTimeCompare([]byte(want), []byte(q.Get("signature"))) != 1 {
		return api.Errorf(api.CodeUnknownUser, "the signature is not valid")
	}
	if expires != "" {
		at, err := strconv.ParseInt(expires, 10, 64)
		if err != nil || now.Unix() > at {
			return api.Errorf(api.CodeUnknownUser, "the signature has expired")
		}
	}
	return nil
}
