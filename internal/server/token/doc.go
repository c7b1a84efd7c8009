// Package token keeps the tokens of a daemon. A request with the secret of a token acts as
// the caller that the token was made for, until the token expires, is rotated or is removed.
//
// Secrets are 256 random bits. A dictionary is of no use against them, so a plain SHA-256 of
// them is stored. A secret is in the answer that creates or rotates its token, and nowhere
// else.
//
// The package must never write a secret anywhere, nor know the sandboxes that tokens are
// bound to.
package token
