package token

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

// bench is a registry whose clock the test moves.
type bench struct {
	*Registry
	t    *testing.T
	path string
	s    *store.Store
	at   time.Time
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "db"), at: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b.open()
	t.Cleanup(func() { b.s.Close() })
	return b
}

func (b *bench) open() {
	b.t.Helper()
	s, err := store.Open(context.Background(), b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	if b.Registry, err = Open(context.Background(), s); err != nil {
		b.t.Fatal(err)
	}
	b.s, b.now = s, func() time.Time { return b.at }
}

func (b *bench) make(ctx context.Context, req api.TokenRequest) *api.IssuedToken {
	b.t.Helper()
	tok, err := b.Issue(ctx, req)
	if err != nil {
		b.t.Fatal(err)
	}
	return tok
}

// as returns the context of whoever has a secret.
func (b *bench) as(secret string) context.Context {
	b.t.Helper()
	s, err := b.Authenticate(context.Background(), secret, false)
	if err != nil {
		b.t.Fatal(err)
	}
	return access.With(context.Background(), s.Caller)
}

func (b *bench) refused(secret string) bool {
	_, err := b.Authenticate(context.Background(), secret, false)
	return api.CodeOf(err) == api.CodeUnknownUser
}

func ended(gone <-chan struct{}) bool {
	select {
	case <-gone:
		return true
	default:
		return false
	}
}

var owner = access.With(context.Background(), access.Owner(7))

func TestTokenStandsForItsCaller(t *testing.T) {
	b := newBench(t)
	tok := b.make(owner, api.TokenRequest{Name: "ci", Tenant: "acme", Scope: api.ScopeExec, Sandbox: "sbx_aaaaaaaaaaaaaaaa"})
	if !strings.HasPrefix(tok.Secret, Prefix) || len(tok.Secret) < 50 {
		t.Errorf("secret %q", tok.Secret)
	}
	for range 2 {
		s, err := b.Authenticate(context.Background(), tok.Secret, false)
		want := access.Caller{Tenant: "acme", Scope: api.ScopeExec, Sandbox: "sbx_aaaaaaaaaaaaaaaa", Token: tok.ID}
		if err != nil || s.Caller != want {
			t.Fatalf("%+v, %v", s, err)
		}
		b.s.Close()
		b.open() // another daemon
	}
	for _, secret := range []string{"", Prefix, tok.Secret + "a", tok.Secret[:len(tok.Secret)-1], strings.ToUpper(tok.Secret), tok.ID} {
		if !b.refused(secret) {
			t.Errorf("%q is a token", secret)
		}
	}
}

// TestSecretsAreNotKept looks for a secret in all that was written.
func TestSecretsAreNotKept(t *testing.T) {
	b := newBench(t)
	secrets := []string{b.make(owner, api.TokenRequest{Scope: api.ScopeRead}).Secret}
	tok := b.make(owner, api.TokenRequest{Scope: api.ScopeRead})
	rotated, err := b.RotateToken(owner, tok.ID, api.RotateRequest{GraceSeconds: 60})
	if err != nil {
		t.Fatal(err)
	}
	secrets = append(secrets, tok.Secret, rotated.Secret)
	files, err := filepath.Glob(b.path + "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range secrets {
			if bytes.Contains(data, []byte(s)) || bytes.Contains(data, []byte(strings.TrimPrefix(s, Prefix))) {
				t.Errorf("%s has a secret", filepath.Base(f))
			}
		}
	}
}

func TestExpiry(t *testing.T) {
	b := newBench(t)
	tok := b.make(owner, api.TokenRequest{Scope: api.ScopeAdmin, TTLSeconds: 60})
	child := b.make(b.as(tok.Secret), api.TokenRequest{Scope: api.ScopeRead, TTLSeconds: 3600})
	if !child.ExpiresAt.Equal(*tok.ExpiresAt) {
		t.Errorf("a token outlives the one that made it: %v, %v", child.ExpiresAt, tok.ExpiresAt)
	}
	endless := b.make(b.as(tok.Secret), api.TokenRequest{Scope: api.ScopeRead})
	if endless.ExpiresAt == nil {
		t.Error("a token without end was made by one that has an end")
	}
	b.at = b.at.Add(59 * time.Second)
	if b.refused(tok.Secret) {
		t.Error("refused before its end")
	}
	b.at = b.at.Add(time.Second)
	for _, s := range []string{tok.Secret, child.Secret, endless.Secret} {
		if !b.refused(s) {
			t.Error("accepted after its end")
		}
	}
	if list := b.KnownTo(owner); len(list) != 0 {
		t.Errorf("expired tokens are listed: %+v", list)
	}
	b.make(owner, api.TokenRequest{Scope: api.ScopeRead})
	if len(b.tokens) != 1 || len(b.hashes) != 1 {
		t.Errorf("%d tokens and %d secrets are kept", len(b.tokens), len(b.hashes))
	}
}

func TestRotation(t *testing.T) {
	b := newBench(t)
	tok := b.make(owner, api.TokenRequest{Scope: api.ScopeRead})
	first, _ := b.Authenticate(context.Background(), tok.Secret, false)
	second, err := b.RotateToken(owner, tok.ID, api.RotateRequest{GraceSeconds: 10})
	if err != nil || second.ID != tok.ID || second.Secret == tok.Secret {
		t.Fatalf("%+v, %v", second, err)
	}
	if b.refused(tok.Secret) || b.refused(second.Secret) || ended(first.Gone) {
		t.Error("within the time of grace not both are valid")
	}
	b.at = b.at.Add(10 * time.Second)
	if !b.refused(tok.Secret) || b.refused(second.Secret) {
		t.Error("after the time of grace it is not only the new one")
	}
	session, _ := b.Authenticate(context.Background(), second.Secret, false)
	third, err := b.RotateToken(owner, tok.ID, api.RotateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !b.refused(second.Secret) || b.refused(third.Secret) || !ended(session.Gone) {
		t.Error("a rotation at once leaves the old secret in use")
	}
}

// What was begun with a secret that leaked must not outlive the time of grace.
func TestRotationEndsWhatTheOldSecretBegan(t *testing.T) {
	b := newBench(t)
	tok := b.make(owner, api.TokenRequest{Scope: api.ScopeRead})
	session := func(secret string) <-chan struct{} {
		t.Helper()
		s, err := b.Authenticate(context.Background(), secret, false)
		if err != nil {
			t.Fatal(err)
		}
		return s.Gone
	}
	rotate := func(grace int64) string {
		t.Helper()
		next, err := b.RotateToken(owner, tok.ID, api.RotateRequest{GraceSeconds: grace})
		if err != nil {
			t.Fatal(err)
		}
		return next.Secret
	}
	first := session(tok.Secret)
	secret := rotate(1)
	second := session(secret)
	select {
	case <-first:
	case <-time.After(time.Minute):
		t.Error("it goes on after the time of grace")
	}
	third := rotate(3600)
	if ended(second) {
		t.Error("it ended before the time of grace")
	}
	fourth := session(rotate(3600))
	if !ended(second) {
		t.Error("it goes on with the secret before the last one")
	}
	last := session(third)
	if err := b.RemoveToken(owner, tok.ID); err != nil {
		t.Fatal(err)
	}
	if !ended(fourth) || !ended(last) {
		t.Error("it goes on without its token")
	}
}

func TestRemovalTakesWhatWasMade(t *testing.T) {
	b := newBench(t)
	top := b.make(owner, api.TokenRequest{Tenant: "acme", Scope: api.ScopeAdmin})
	mid := b.make(b.as(top.Secret), api.TokenRequest{Scope: api.ScopeAdmin, Tree: "sbx_aaaaaaaaaaaaaaaa"})
	leaf := b.make(b.as(mid.Secret), api.TokenRequest{Scope: api.ScopeRead, Sandbox: "sbx_aaaaaaaaaaaaaaaa"})
	other := b.make(owner, api.TokenRequest{Tenant: "acme", Scope: api.ScopeAdmin})
	stranger := b.make(owner, api.TokenRequest{Tenant: "umbrella", Scope: api.ScopeAdmin})
	if err := b.RemoveToken(b.as(stranger.Secret), top.ID); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("another tenant's: %v", err)
	}
	if err := b.RemoveToken(b.as(mid.Secret), other.ID); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("by one that is bound: %v", err)
	}
	if got := len(b.KnownTo(b.as(mid.Secret))); got != 2 {
		t.Errorf("one that is bound sees %d tokens", got)
	}
	session, _ := b.Authenticate(context.Background(), leaf.Secret, false)
	if err := b.RemoveToken(b.as(other.Secret), top.ID); err != nil {
		t.Fatal(err)
	}
	if !b.refused(top.Secret) || !b.refused(mid.Secret) || !b.refused(leaf.Secret) || !ended(session.Gone) || b.refused(other.Secret) {
		t.Error("not those are gone that were made by it")
	}
}

func TestNobodyHandsOutMoreThanHeHas(t *testing.T) {
	b := newBench(t)
	secret := func(req api.TokenRequest) context.Context { return b.as(b.make(owner, req).Secret) }
	admin := secret(api.TokenRequest{Tenant: "acme", Scope: api.ScopeAdmin})
	exec := secret(api.TokenRequest{Tenant: "acme", Scope: api.ScopeExec})
	tree := secret(api.TokenRequest{Tenant: "acme", Scope: api.ScopeAdmin, Tree: "sbx_aaaaaaaaaaaaaaaa"})
	alone := secret(api.TokenRequest{Tenant: "acme", Scope: api.ScopeAdmin, Sandbox: "sbx_aaaaaaaaaaaaaaaa"})
	for name, c := range map[string]struct {
		ctx  context.Context
		req  api.TokenRequest
		code api.Code
	}{
		"another tenant":              {admin, api.TokenRequest{Tenant: "default", Scope: api.ScopeRead}, api.CodeForbidden},
		"a wider scope":               {exec, api.TokenRequest{Scope: api.ScopeAdmin}, api.CodeForbidden},
		"no scope":                    {admin, api.TokenRequest{}, api.CodeInvalid},
		"a made-up scope":             {admin, api.TokenRequest{Scope: "root"}, api.CodeInvalid},
		"out of a tree":               {tree, api.TokenRequest{Scope: api.ScopeRead}, api.CodeForbidden},
		"another sandbox":             {alone, api.TokenRequest{Scope: api.ScopeRead, Sandbox: "sbx_bbbbbbbbbbbbbbbb"}, api.CodeForbidden},
		"both":                        {admin, api.TokenRequest{Scope: api.ScopeRead, Sandbox: "a", Tree: "b"}, api.CodeInvalid},
		"a tenant of no name":         {owner, api.TokenRequest{Tenant: "../x", Scope: api.ScopeRead}, api.CodeInvalid},
		"a negative time":             {owner, api.TokenRequest{Scope: api.ScopeRead, TTLSeconds: -1}, api.CodeInvalid},
		"an endless one for browsers": {owner, api.TokenRequest{Scope: api.ScopeRead, Sandbox: "a", Browser: true}, api.CodeInvalid},
		"a wide one for browsers":     {owner, api.TokenRequest{Scope: api.ScopeRead, TTLSeconds: 60, Browser: true}, api.CodeInvalid},
	} {
		if _, err := b.Issue(c.ctx, c.req); api.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnlyTokensForBrowsersStandInURLs(t *testing.T) {
	b := newBench(t)
	plain := b.make(owner, api.TokenRequest{Scope: api.ScopeRead})
	browser := b.make(owner, api.TokenRequest{Scope: api.ScopeExec, Sandbox: "sbx_aaaaaaaaaaaaaaaa", TTLSeconds: 60, Browser: true})
	if _, err := b.Authenticate(context.Background(), plain.Secret, true); api.CodeOf(err) != api.CodeUnknownUser {
		t.Errorf("plain: %v", err)
	}
	if s, err := b.Authenticate(context.Background(), browser.Secret, true); err != nil || s.Until.IsZero() {
		t.Errorf("browser: %+v, %v", s, err)
	}
}

// slowDisk is a store of which nothing comes back before the test says so.
type slowDisk struct {
	records
	arrived, proceed chan struct{}
}

func (d slowDisk) Apply(ctx context.Context, changes ...store.Change) error {
	d.wait()
	return d.records.Apply(ctx, changes...)
}

func (d slowDisk) Sync(ctx context.Context) error {
	d.wait()
	return d.records.Sync(ctx)
}

func (d slowDisk) wait() {
	d.arrived <- struct{}{}
	<-d.proceed
}

// TestNobodyWaitsForTheDisk has tokens changed while others are used.
func TestNobodyWaitsForTheDisk(t *testing.T) {
	b := newBench(t)
	used := b.make(owner, api.TokenRequest{Scope: api.ScopeRead})
	other := b.make(owner, api.TokenRequest{Scope: api.ScopeRead})
	disk := slowDisk{b.store, make(chan struct{}), make(chan struct{})}
	b.store = disk
	for what, change := range map[string]func() error{
		"create": func() error {
			_, err := b.Issue(owner, api.TokenRequest{Scope: api.ScopeRead})
			return err
		},
		"rotate": func() error {
			_, err := b.RotateToken(owner, used.ID, api.RotateRequest{GraceSeconds: 60})
			return err
		},
		"remove": func() error { return b.RemoveToken(owner, other.ID) },
	} {
		changed := make(chan error, 1)
		go func() { changed <- change() }()
		for range 2 { // it writes, and then syncs
			<-disk.arrived
			seen := make(chan bool, 1)
			go func() {
				_, err := b.Authenticate(context.Background(), used.Secret, false)
				seen <- err == nil && len(b.KnownTo(owner)) > 0
			}()
			select {
			case ok := <-seen:
				if !ok {
					t.Errorf("%s: a token that is valid was refused", what)
				}
			case <-time.After(time.Minute):
				t.Errorf("%s: who uses another token waits for the disk", what)
			}
			disk.proceed <- struct{}{}
		}
		if err := <-changed; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// endedDisk is a store whose Sync begins when the context of the request has ended.
type endedDisk struct {
	records
	request context.Context
}

func (d endedDisk) Sync(ctx context.Context) error {
	<-d.request.Done()
	return d.records.Sync(ctx)
}

// TestTokenChangesItself has a token rotate and remove itself in a request whose context
// ends with the token, as those of REST do: it gets its new secret, and both changes are
// on disk.
func TestTokenChangesItself(t *testing.T) {
	b := newBench(t)
	// request returns the context of a request with a secret, and what ends with others.
	request := func(secret string) (context.Context, <-chan struct{}) {
		s, err := b.Authenticate(context.Background(), secret, false)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(access.With(context.Background(), s.Caller))
		go func() {
			<-s.Gone
			cancel()
		}()
		b.store = endedDisk{b.s, ctx}
		return ctx, s.Gone
	}
	tok := b.make(owner, api.TokenRequest{Tenant: "acme", Scope: api.ScopeAdmin})
	ctx, others := request(tok.Secret)
	next, err := b.RotateToken(ctx, tok.ID, api.RotateRequest{})
	if err != nil || next == nil || b.refused(next.Secret) || !b.refused(tok.Secret) || !ended(others) {
		t.Fatalf("rotation: %+v, %v", next, err)
	}
	ctx, others = request(next.Secret)
	if err := b.RemoveToken(ctx, tok.ID); err != nil || !b.refused(next.Secret) || !ended(others) {
		t.Errorf("removal: %v", err)
	}
}

// TestKeysNameSecrets follows what is derived from a token through a rotation and its end.
func TestKeysNameSecrets(t *testing.T) {
	b := newBench(t)
	tok := b.make(owner, api.TokenRequest{Tenant: "acme", Scope: api.ScopeExec})
	b.make(owner, api.TokenRequest{Tenant: "other", Scope: api.ScopeExec})
	keyOf := func(secret string) string {
		t.Helper()
		s, err := b.Authenticate(context.Background(), secret, false)
		if err != nil {
			t.Fatal(err)
		}
		return s.Key
	}
	check := func(what string, all int, keys ...string) {
		t.Helper()
		list := b.Sessions(context.Background(), "acme")
		if len(list) != all {
			t.Errorf("%s: %d sessions, want %d", what, len(list), all)
		}
		for _, key := range keys {
			if s, err := b.SessionOf(context.Background(), key); err != nil || s.Key != key || s.Caller.Token != tok.ID {
				t.Errorf("%s: %+v, %v", what, s, err)
			}
		}
	}
	first := keyOf(tok.Secret)
	if strings.Contains(tok.Secret, strings.TrimPrefix(first, tok.ID+".")) {
		t.Errorf("the key %s has a part of the secret", first)
	}
	check("at first", 1, first)
	rotated, err := b.RotateToken(owner, tok.ID, api.RotateRequest{GraceSeconds: 60})
	if err != nil {
		t.Fatal(err)
	}
	second := keyOf(rotated.Secret)
	if first == second {
		t.Error("a rotation leaves the key")
	}
	check("within the grace", 2, first, second)
	b.at = b.at.Add(61 * time.Second)
	check("after the grace", 1, second)
	for _, key := range []string{"", first, tok.ID, tok.ID + ".", second + "0"} {
		if s, err := b.SessionOf(context.Background(), key); api.CodeOf(err) != api.CodeUnknownUser {
			t.Errorf("key %q: %+v, %v", key, s, err)
		}
	}
	if err := b.RemoveToken(owner, tok.ID); err != nil {
		t.Fatal(err)
	}
	check("at the end", 0)
}
