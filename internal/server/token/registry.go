package token

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

const (
	// Prefix begins every secret, so that scanners recognise a secret wherever it is found.
	Prefix      = httpwire.SecretPrefix
	secretBytes = 32
	// MaxBrowser is the longest validity of a token that may stand in URLs, which are
	// written to logs and histories.
	MaxBrowser = time.Hour
	// MaxTokens bounds the tokens of a tenant.
	MaxTokens = 10000
)

var secretText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

type digest [sha256.Size]byte

// generation names a secret without telling it.
func (d digest) generation() string {
	sum := sha256.Sum256(append([]byte("generation\x00"), d[:]...))
	return hex.EncodeToString(sum[:8])
}

// MarshalText implements encoding.TextMarshaler.
func (d digest) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(d[:])), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *digest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(d) {
		return errors.New("a digest has 64 hexadecimal digits")
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// record is a token as it is stored.
type record struct {
	api.Token
	Secret digest `json:"secret"`
	// Old is the secret before the last rotation, valid until OldUntil.
	Old      *digest   `json:"old,omitempty"`
	OldUntil time.Time `json:"old_until,omitzero"`
}

// entry is a token. Its record is never changed in place.
type entry struct {
	rec  record
	gone chan struct{} // closed when its secret is no longer valid
	// endFormer ends the requests of the secret before the last rotation, if that secret is
	// still valid; else it is nil.
	endFormer func()
}

// end ends the requests of e.
func (e *entry) end() {
	if e.endFormer != nil {
		e.endFormer()
	}
	close(e.gone)
}

// replace makes next the entry that has e's token with another secret. Requests of e's
// secret go on for grace, unless next ends before.
func (e *entry) replace(next *entry, grace time.Duration) {
	if grace == 0 {
		e.end()
		return
	}
	if e.endFormer != nil {
		e.endFormer() // a token has two secrets at most
	}
	end := sync.OnceFunc(func() { close(e.gone) })
	timer := time.AfterFunc(grace, end)
	next.endFormer = func() {
		timer.Stop()
		end()
	}
}

// Registry has all tokens. It is safe for concurrent use.
type Registry struct {
	store records
	now   func() time.Time

	// changing is held while a token is changed and the change is written to disk. It
	// comes before mu, which is held for moments only: every request waits for it.
	changing sync.Mutex
	mu       sync.RWMutex
	tokens   map[string]*entry // changed with both held, so read with either
	hashes   map[digest]*entry
}

// records stores tokens. It is a store.Store.
type records interface {
	Apply(ctx context.Context, changes ...store.Change) error
	Sync(ctx context.Context) error
}

// Open reads the tokens and forgets those that have expired.
func Open(ctx context.Context, s *store.Store) (*Registry, error) {
	r := &Registry{store: s, now: time.Now, tokens: map[string]*entry{}, hashes: map[digest]*entry{}}
	err := s.Each(ctx, store.Tokens, func(id string, doc []byte) error {
		e := &entry{gone: make(chan struct{})}
		if err := json.Unmarshal(doc, &e.rec); err != nil {
			return api.Errorf(api.CodeCorrupt, "record of token %s: %w", id, err)
		}
		r.add(e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	return r, r.forgetExpired(ctx)
}

// forgetExpired is called with changing held, or before the registry is shared.
func (r *Registry) forgetExpired(ctx context.Context) error {
	var old []*entry
	for _, e := range r.tokens {
		if r.expired(&e.rec) {
			old = append(old, e)
		}
	}
	if len(old) == 0 {
		return nil
	}
	if err := r.store.Apply(ctx, deletions(old)...); err != nil {
		return err
	}
	r.drop(old...)
	return nil
}

func deletions(of []*entry) []store.Change {
	changes := make([]store.Change, len(of))
	for i, e := range of {
		changes[i] = store.Change{Table: store.Tokens, ID: e.rec.ID}
	}
	return changes
}

// add adds e, in place of an earlier entry of its token.
func (r *Registry) add(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := r.tokens[e.rec.ID]; before != nil {
		r.dropSecrets(before)
	}
	r.tokens[e.rec.ID] = e
	r.hashes[e.rec.Secret] = e
	if e.rec.Old != nil {
		r.hashes[*e.rec.Old] = e
	}
}

// drop forgets tokens, and ends their requests.
func (r *Registry) drop(gone ...*entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range gone {
		delete(r.tokens, e.rec.ID)
		r.dropSecrets(e)
		e.end()
	}
}

func (r *Registry) dropSecrets(e *entry) {
	delete(r.hashes, e.rec.Secret)
	if e.rec.Old != nil {
		delete(r.hashes, *e.rec.Old)
	}
}

func (r *Registry) expired(rec *record) bool {
	return rec.ExpiresAt != nil && !r.now().Before(*rec.ExpiresAt)
}

var errUnknown = api.Errorf(api.CodeUnknownUser, "the token is not valid: it may have expired, or was rotated or removed")

// Authenticate returns the session of a secret. A secret that was found in a URL must belong
// to a token that was made for URLs.
func (r *Registry) Authenticate(_ context.Context, secret string, inURL bool) (*service.Session, error) {
	sum := digest(sha256.Sum256([]byte(secret)))
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.hashes[sum]
	if e == nil || r.expired(&e.rec) {
		return nil, errUnknown
	}
	s := r.session(e, sum)
	if s == nil {
		return nil, errUnknown
	}
	if inURL && !e.rec.Browser {
		return nil, api.Errorf(api.CodeUnknownUser, "only tokens that were made for browsers may stand in a URL: send it as Authorization: Bearer")
	}
	return s, nil
}

// session returns the session of one of the secrets of e, or nil if it is not valid.
func (r *Registry) session(e *entry, sum digest) *service.Session {
	s := &service.Session{Caller: callerOf(&e.rec.Token), Gone: e.gone, Key: e.rec.ID + "." + sum.generation()}
	if e.rec.ExpiresAt != nil {
		s.Until = *e.rec.ExpiresAt
	}
	if subtle.ConstantTimeCompare(sum[:], e.rec.Secret[:]) != 1 { // it is the old secret, or the map is wrong
		if e.rec.Old == nil || subtle.ConstantTimeCompare(sum[:], e.rec.Old[:]) != 1 || !r.now().Before(e.rec.OldUntil) {
			return nil
		}
		if s.Until.IsZero() || e.rec.OldUntil.Before(s.Until) {
			s.Until = e.rec.OldUntil
		}
	}
	return s
}

// SessionOf returns the session of the secret that key names, see service.Session.
func (r *Registry) SessionOf(_ context.Context, key string) (*service.Session, error) {
	id, _, _ := strings.Cut(key, ".")
	r.mu.RLock()
	defer r.mu.RUnlock()
	if e := r.tokens[id]; e != nil {
		for _, s := range r.sessions(e) {
			if s.Key == key {
				return s, nil
			}
		}
	}
	return nil, errUnknown
}

// Sessions returns the sessions of all valid secrets of a tenant, in the order of their keys.
func (r *Registry) Sessions(_ context.Context, tenant string) []*service.Session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var all []*service.Session
	for _, e := range r.tokens {
		if e.rec.Tenant == tenant {
			all = append(all, r.sessions(e)...)
		}
	}
	slices.SortFunc(all, func(a, b *service.Session) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// sessions returns the sessions of the valid secrets of e.
func (r *Registry) sessions(e *entry) (all []*service.Session) {
	if r.expired(&e.rec) {
		return nil
	}
	all = append(all, r.session(e, e.rec.Secret))
	if e.rec.Old != nil {
		if s := r.session(e, *e.rec.Old); s != nil {
			all = append(all, s)
		}
	}
	return all
}

func callerOf(t *api.Token) access.Caller {
	return access.Caller{Tenant: t.Tenant, Scope: t.Scope, Tree: t.Tree, Sandbox: t.Sandbox, Token: t.ID}
}

// Issue makes a token. Tree and Sandbox are ids that the caller sees.
func (r *Registry) Issue(ctx context.Context, req api.TokenRequest) (*api.IssuedToken, error) {
	caller := access.From(ctx)
	req.Tenant = cmp.Or(req.Tenant, caller.Tenant)
	if err := check(caller, &req); err != nil {
		return nil, err
	}
	now := r.now().UTC()
	e := &entry{gone: make(chan struct{}), rec: record{Token: api.Token{
		ID: api.NewID(api.KindToken), Name: req.Name, Tenant: req.Tenant, Scope: req.Scope, Tree: req.Tree, Sandbox: req.Sandbox,
		Browser: req.Browser, CreatedAt: now, CreatedBy: caller.Token,
	}}}
	if req.TTLSeconds > 0 {
		until := now.Add(time.Duration(req.TTLSeconds) * time.Second)
		e.rec.ExpiresAt = &until
	}
	secret := e.rec.newSecret()
	r.changing.Lock()
	defer r.changing.Unlock()
	if err := r.forgetExpired(ctx); err != nil {
		return nil, err
	}
	if maker := r.tokens[caller.Token]; caller.Token != "" {
		if maker == nil {
			return nil, errUnknown // it was removed meanwhile
		}
		if end := maker.rec.ExpiresAt; end != nil && (e.rec.ExpiresAt == nil || end.Before(*e.rec.ExpiresAt)) {
			e.rec.ExpiresAt = end
		}
	}
	count := 0
	for _, other := range r.tokens {
		if other.rec.Tenant == req.Tenant {
			count++
		}
	}
	if count >= MaxTokens {
		return nil, api.Errorf(api.CodeLimit, "tenant %s has %d tokens, the most there may be: remove some, or give them an end", req.Tenant, count)
	}
	if err := r.store.Apply(ctx, store.Change{Table: store.Tokens, ID: e.rec.ID, Doc: e.rec}); err != nil {
		return nil, fmt.Errorf("create token: %w", err)
	}
	r.add(e)
	return &api.IssuedToken{Token: e.rec.Token, Secret: secret}, r.sync(ctx)
}

// sync writes changes to disk. It does not end with ctx: the change is made, and a token
// that changes itself ends the context of its own request.
func (r *Registry) sync(ctx context.Context) error { return r.store.Sync(context.WithoutCancel(ctx)) }

// check refuses rights that the caller may not grant.
func check(c access.Caller, req *api.TokenRequest) error {
	switch {
	case req.Tenant != c.Tenant && !c.Owner:
		return api.Errorf(api.CodeForbidden, "only the owner of the daemon makes tokens of other tenants")
	case !req.Scope.Valid():
		return api.Invalid("scope", "%q is not read, exec or admin", req.Scope)
	case !c.Scope.Covers(req.Scope):
		return api.Errorf(api.CodeForbidden, "a token of scope %s makes none of scope %s", c.Scope, req.Scope)
	case req.Tree != "" && req.Sandbox != "":
		return api.Invalid("sandbox", "a token is bound to a tree or to a sandbox, not to both")
	case c.Bound() && req.Tree == "" && req.Sandbox == "":
		return api.Errorf(api.CodeForbidden, "this token sees a part of the tenant only, and so must those that it makes: give a tree or a sandbox")
	case c.Sandbox != "" && req.Sandbox != c.Sandbox:
		return api.Errorf(api.CodeForbidden, "this token is bound to sandbox %s, and so must those be that it makes", c.Sandbox)
	case len(req.Name) > 100:
		return api.Invalid("name", "%d characters are more than 100", len(req.Name))
	case req.TTLSeconds < 0 || req.TTLSeconds > 315360000:
		return api.Invalid("ttl_s", "%d is not from 0 (no end) to 315360000", req.TTLSeconds)
	case req.Browser && (req.TTLSeconds == 0 || time.Duration(req.TTLSeconds)*time.Second > MaxBrowser):
		return api.Invalid("ttl_s", "a token for browsers needs an end, within %d seconds", int(MaxBrowser.Seconds()))
	case req.Browser && (req.Sandbox == "" || req.Scope == api.ScopeAdmin):
		return api.Invalid("browser", "a token for browsers is bound to a sandbox, and of scope read or exec")
	}
	return api.ValidTenant(req.Tenant)
}

func (rec *record) newSecret() string {
	var b [secretBytes]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	secret := Prefix + secretText.EncodeToString(b[:])
	rec.Secret = sha256.Sum256([]byte(secret))
	return secret
}

// KnownTo returns the tokens that the caller may see, oldest first.
func (r *Registry) KnownTo(ctx context.Context) []api.Token {
	caller := access.From(ctx)
	r.mu.RLock()
	defer r.mu.RUnlock()
	list := []api.Token{}
	for _, e := range r.tokens {
		if !r.expired(&e.rec) && r.rules(caller, e) {
			list = append(list, e.rec.Token)
		}
	}
	slices.SortFunc(list, func(a, b api.Token) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return list
}

// rules reports whether a caller may see, rotate and remove a token. The owner may so with
// all tokens, an unbound caller with those of its tenant, and a bound caller with its own
// token and those that it created.
func (r *Registry) rules(c access.Caller, e *entry) bool {
	switch {
	case c.Owner:
		return true
	case e.rec.Tenant != c.Tenant:
		return false
	case !c.Bound() || e.rec.ID == c.Token:
		return true
	}
	for by := e.rec.CreatedBy; by != ""; {
		if by == c.Token {
			return true
		}
		maker := r.tokens[by]
		if maker == nil {
			return false
		}
		by = maker.rec.CreatedBy
	}
	return false
}

func (r *Registry) find(ctx context.Context, id string) (*entry, error) {
	if e := r.tokens[id]; e != nil && !r.expired(&e.rec) && r.rules(access.From(ctx), e) {
		return e, nil
	}
	return nil, api.NotFound("token", id)
}

// RotateToken gives a token another secret. The old secret stays valid for some time.
func (r *Registry) RotateToken(ctx context.Context, id string, req api.RotateRequest) (*api.IssuedToken, error) {
	if req.GraceSeconds < 0 || req.GraceSeconds > 86400 {
		return nil, api.Invalid("grace_s", "%d is not from 0 to 86400", req.GraceSeconds)
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	e, err := r.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if !access.From(ctx).Scope.Covers(e.rec.Scope) {
		return nil, api.Errorf(api.CodeForbidden, "a token of scope %s does not rotate one of scope %s", access.From(ctx).Scope, e.rec.Scope)
	}
	now := r.now().UTC()
	next := &entry{rec: e.rec, gone: make(chan struct{})}
	next.rec.Old, next.rec.OldUntil, next.rec.RotatedAt = nil, time.Time{}, &now
	grace := time.Duration(req.GraceSeconds) * time.Second
	if grace > 0 {
		old := e.rec.Secret
		next.rec.Old, next.rec.OldUntil = &old, now.Add(grace)
	}
	secret := next.rec.newSecret()
	if err := r.store.Apply(ctx, store.Change{Table: store.Tokens, ID: id, Doc: next.rec}); err != nil {
		return nil, fmt.Errorf("rotate token: %w", err)
	}
	r.add(next)
	e.replace(next, grace)
	return &api.IssuedToken{Token: next.rec.Token, Secret: secret}, r.sync(ctx)
}

// RemoveToken ends a token and the tokens that were created with it.
func (r *Registry) RemoveToken(ctx context.Context, id string) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	e, err := r.find(ctx, id)
	if err != nil {
		return err
	}
	doomed := []*entry{e}
	for i := 0; i < len(doomed); i++ {
		for _, other := range r.tokens {
			if other.rec.CreatedBy == doomed[i].rec.ID {
				doomed = append(doomed, other)
			}
		}
	}
	if err := r.store.Apply(ctx, deletions(doomed)...); err != nil {
		return fmt.Errorf("remove token: %w", err)
	}
	r.drop(doomed...)
	return r.sync(ctx) // a token that was removed stays so, even after a loss of power
}
