package api

import "time"

// Scope is the rights of a caller. Each scope includes the scopes before it.
type Scope string

// The scopes.
const (
	ScopeRead  Scope = "read"  // read everything, files included
	ScopeExec  Scope = "exec"  // act inside of sandboxes
	ScopeAdmin Scope = "admin" // create, change and remove sandboxes, snapshots, images and tokens
)

var scopeRank = map[Scope]int{ScopeRead: 1, ScopeExec: 2, ScopeAdmin: 3}

// Valid reports whether s is a scope.
func (s Scope) Valid() bool { return scopeRank[s] > 0 }

// Covers reports whether s includes other.
func (s Scope) Covers(other Scope) bool { return s.Valid() && scopeRank[s] >= scopeRank[other] }

// Token is a token without its secret.
type Token struct {
	ID        string     `json:"id" doc:"id of the token"`
	Name      string     `json:"name,omitempty" doc:"name, for people"`
	Tenant    string     `json:"tenant" doc:"tenant that it gives access to"`
	Scope     Scope      `json:"scope" doc:"scope: the rights of the token"`
	Tree      string     `json:"tree,omitempty" doc:"it sees only this sandbox or snapshot and its descendants"`
	Sandbox   string     `json:"sandbox,omitempty" doc:"it sees only this sandbox"`
	Browser   bool       `json:"browser,omitempty" doc:"it may stand in a URL, as the parameter access_token"`
	CreatedAt time.Time  `json:"created_at" doc:"when it was made"`
	CreatedBy string     `json:"created_by,omitempty" doc:"token that created it, with which it is removed; empty if the owner of the daemon did"`
	RotatedAt *time.Time `json:"rotated_at,omitempty" doc:"when its secret was last replaced"`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"when it expires; absent if never"`
}

// TokenRequest asks for a token.
type TokenRequest struct {
	Name       string `json:"name,omitempty" maxLength:"100" doc:"name, for people"`
	Tenant     string `json:"tenant,omitempty" doc:"tenant of the token; the caller's own if absent; only the owner of the daemon may name another tenant"`
	Scope      Scope  `json:"scope" doc:"scope: the rights of the token"`
	Tree       string `json:"tree,omitempty" doc:"sandbox or snapshot, by id or name: the token sees only it and its descendants"`
	Sandbox    string `json:"sandbox,omitempty" doc:"id or name: the token sees only this sandbox"`
	TTLSeconds int64  `json:"ttl_s,omitempty" minimum:"0" maximum:"315360000" doc:"how long it is valid; 0 is without end, but never longer than the token that creates it"`
	Browser    bool   `json:"browser,omitempty" doc:"it may stand in a URL, for WebSockets and event streams of browsers; needs a sandbox, a scope of read or exec and a ttl_s of at most 3600"`
}

// RotateRequest asks for another secret of a token.
type RotateRequest struct {
	GraceSeconds int64 `json:"grace_s,omitempty" minimum:"0" maximum:"86400" doc:"how long the old secret stays valid"`
}

// IssuedToken is a token with its secret, which no later answer has.
type IssuedToken struct {
	Token
	Secret string `json:"secret" doc:"the secret; it is only in this answer and is not stored"`
}
