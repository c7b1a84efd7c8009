package grant

import (
	"context"
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
	"ramet.dev/ramet/internal/service"
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

// Kind is what a token is for.
type Kind string

// The kinds of tokens.
const (
	Access Kind = "access" // to one sandbox
	Volume Kind = "volume" // to the files of one volume
	upload Kind = "upload" // of one archive for builds
)

// scopes are those that a key needs, so that a token is derived from it.
var scopes = map[Kind]api.Scope{Access: api.ScopeExec, Volume: api.ScopeAdmin, upload: api.ScopeAdmin}

// Sessions are the keys that there are.
type Sessions interface {
	SessionOf(ctx context.Context, key string) (*service.Session, error)
	Sessions(ctx context.Context, tenant string) []*service.Session
}

// Grants makes and checks tokens. It is safe for concurrent use.
type Grants struct {
	secret   []byte
	sessions Sessions
	// searching has room for one search through all keys.
	searching chan struct{}
}

// New returns Grants whose tokens are made with a secret.
func New(secret []byte, sessions Sessions) *Grants {
	return &Grants{secret, sessions, make(chan struct{}, 1)}
}

func (g *Grants) mac(parts ...string) string {
	mac := hmac.New(sha256.New, g.secret)
	for _, p := range parts {
		mac.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (g *Grants) token(key string, kind Kind, id string) string {
	return key + "." + g.mac(string(kind), key, id)
}

// Token returns the token that is derived from the key of a session for a sandbox or volume. It is empty if the scope
// of the key does not cover its use.
func (g *Grants) Token(s *service.Session, kind Kind, id string) string {
	if s == nil || s.Key == "" || !s.Caller.Scope.Covers(scopes[kind]) {
		return ""
	}
	return g.token(s.Key, kind, id)
}

// ErrAccess says that a request has no token for the thing that it names.
var ErrAccess = api.Errorf(api.CodeUnknownUser, "the access token is not that of the sandbox, or its API key has ended: connect to the sandbox again")

// Check returns the session of the key that a token was derived from, while that is valid.
func (g *Grants) Check(ctx context.Context, kind Kind, id, token string) (*service.Session, error) {
	i := strings.LastIndexByte(token, '.')
	if i < 0 {
		return nil, ErrAccess
	}
	key := token[:i]
	if subtle.ConstantTimeCompare([]byte(g.token(key, kind, id)), []byte(token)) != 1 {
		return nil, ErrAccess
	}
	return g.alive(ctx, key, kind)
}

// alive returns the session of a key whose scope covers the use of a token.
func (g *Grants) alive(ctx context.Context, key string, kind Kind) (*service.Session, error) {
	s, err := g.sessions.SessionOf(ctx, key)
	if err != nil || !s.Caller.Scope.Covers(scopes[kind]) {
		return nil, ErrAccess
	}
	return s, nil
}

// uploadTime is how long the URL for an upload is valid.
const uploadTime = time.Hour

// Upload returns the query of the URL to which an archive for builds of the key's tenant is sent.
func (g *Grants) Upload(s *service.Session, hash string, now time.Time) url.Values {
	until := strconv.FormatInt(now.Add(uploadTime).Unix(), 10)
	return url.Values{"by": {s.Key}, "until": {until}, "key": {g.mac(string(upload), s.Key, hash, until)}}
}

// CheckUpload returns the session of the key that the query of an upload was derived from.
func (g *Grants) CheckUpload(ctx context.Context, q url.Values, hash string, now time.Time) (*service.Session, error) {
	want := g.mac(string(upload), q.Get("by"), hash, q.Get("until"))
	until, err := strconv.ParseInt(q.Get("until"), 10, 64)
	if subtle.ConstantTimeCompare([]byte(want), []byte(q.Get("key"))) != 1 || err != nil || now.Unix() > until {
		return nil, api.Errorf(api.CodeUnknownUser, "the URL of the upload is not valid, or has expired: ask for another")
	}
	return g.alive(ctx, q.Get("by"), upload)
}

// Sandbox is one that a URL for a file may be of.
type Sandbox struct{ Tenant, ID string }

// Signer returns the sandbox, of some, whose access token has signed the query of a URL for a file, and the session of
// the key that the token was derived from. The query does not name the key: all keys of the tenants are tried, one
// search at a time, because anybody can ask.
func (g *Grants) Signer(ctx context.Context, q url.Values, operation string, among []Sandbox, now time.Time) (id string, _ *service.Session, err error) {
	select {
	case g.searching <- struct{}{}:
		defer func() { <-g.searching }()
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
	sessions := map[string][]*service.Session{}
	for _, sb := range among {
		if _, known := sessions[sb.Tenant]; !known {
			sessions[sb.Tenant] = g.sessions.Sessions(ctx, sb.Tenant)
		}
		for _, s := range sessions[sb.Tenant] {
			if token := g.Token(s, Access, sb.ID); token != "" && isSigned(q, operation, token) {
				return sb.ID, s, expired(q, now)
			}
		}
		if ctx.Err() != nil {
			return "", nil, context.Cause(ctx)
		}
	}
	return "", nil, api.Errorf(api.CodeUnknownUser, "the signature is not valid: its access token is that of no sandbox, or its API key has ended")
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

// isSigned reports whether the query of a request for a file is signed with an access token.
func isSigned(q url.Values, operation, token string) bool {
	want := signature(q.Get("path"), operation, q.Get("username"), token, q.Get("signature_expiration"))
	return subtle.ConstantTimeCompare([]byte(want), []byte(q.Get("signature"))) == 1
}

// expired returns an error if a signature has ended, in the words that clients know.
func expired(q url.Values, now time.Time) error {
	text := q.Get("signature_expiration")
	if text == "" {
		return nil
	}
	if at, err := strconv.ParseInt(text, 10, 64); err != nil || now.Unix() > at {
		return api.Errorf(api.CodeUnknownUser, "signature is already expired")
	}
	return nil
}
