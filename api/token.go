package api

import "time"

// Scope is how much somebody may do. Each has all that the one before has.
type Scope string

// The scopes.
const (
	ScopeRead  Scope = "read"  // look at everything, files included
	ScopeExec  Scope = "exec"  // do things in sandboxes
	ScopeAdmin Scope = "admin" // make, change and remove sandboxes, snapshots, images and tokens
)

var scopeRank = map[Scope]int{ScopeRead: 1, ScopeExec: 2, ScopeAdmin: 3}

// Valid reports whether s is a scope.
func (s Scope) Valid() bool { return scopeRank[s] > 0 }

// Covers reports whether s has all that other has.
func (s Scope) Covers(other Scope) bool { return s.Valid() && scopeRank[s] >= scopeRank[other] }

// Token is what is known of a token but its secret.
type Token struct {
	ID        string     `json:"id" doc:"id of the token"`
	Name      string     `json:"name,omitempty" doc:"for people"`
	Tenant    string     `json:"tenant" doc:"whose things it gives access to"`
	Scope     Scope      `json:"scope" doc:"how much it may do"`
	Tree      string     `json:"tree,omitempty" doc:"it sees only what descends from this sandbox or snapshot, and itself"`
	Sandbox   string     `json:"sandbox,omitempty" doc:"it sees only this sandbox"`
	Browser   bool       `json:"browser,omitempty" doc:"it may stand in a URL, as the parameter access_token"`
	CreatedAt time.Time  `json:"created_at" doc:"when it was made"`
	CreatedBy string     `json:"created_by,omitempty" doc:"token that made it, with which it is removed; empty if the owner of the daemon did"`
	RotatedAt *time.Time `json:"rotated_at,omitempty" doc:"when its secret was replaced last"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"absent if it never does"`
}

// TokenRequest asks for a token.
type TokenRequest struct {
	Name       string `json:"name,omitempty" maxLength:"100" doc:"for people"`
	Tenant     string `json:"tenant,omitempty" doc:"the caller's own if absent; only the owner of the daemon may name another"`
	Scope      Scope  `json:"scope" doc:"how much it may do"`
	Tree       string `json:"tree,omitempty" doc:"sandbox or snapshot, by id or name: the token sees only what descends from it, and itself"`
	Sandbox    string `json:"sandbox,omitempty" doc:"id or name: the token sees only this sandbox"`
	TTLSeconds int64  `json:"ttl_s,omitempty" minimum:"0" maximum:"315360000" doc:"how long it is valid; 0 is without end, but not longer than the token that makes it"`
	Browser    bool   `json:"browser,omitempty" doc:"it may stand in a URL, for WebSockets and event streams of browsers; needs a sandbox, a scope of read or exec and a ttl_s of at most 3600"`
}

// RotateRequest asks for another secret of a token.
type RotateRequest struct {
	GraceSeconds int64 `json:"grace_s,omitempty" minimum:"0" maximum:"86400" doc:"how long the old secret is valid besides"`
}

// IssuedToken is a token with its secret, which is told once.
type IssuedToken struct {
	Token
	Secret string `json:"secret" doc:"told only here: it is not kept"`
}
