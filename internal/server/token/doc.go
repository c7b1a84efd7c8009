// Package token keeps the tokens of a daemon: who has a secret is the caller that
// it was made for, until it expires, is rotated or removed.
//
// Secrets are 256 random bits, so that their SHA-256 is kept and nothing that is
// slow to compute: there is no dictionary to try. They are told once.
//
// The package must never write a secret anywhere, nor know what the sandboxes are
// that tokens are bound to.
package token
