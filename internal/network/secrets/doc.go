// Package secrets keeps the named secrets of tenants, which the gateway puts into requests
// so that no sandbox has them.
//
// All secrets are in one file, encrypted with age (https://age-encryption.org) for an
// identity in a file beside it that only the user can read. Whoever reads a copy of the one
// without the other, as in a backup, has nothing. Values are decrypted when they are needed,
// and a Value prints as nothing but its kind.
//
// A sandbox has placeholders in place of secrets: random words that are worth nothing
// anywhere else, and from which no value can be derived.
//
// The package must never write a value anywhere but into that file, nor know what requests
// are.
package secrets
