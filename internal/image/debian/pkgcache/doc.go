// Package pkgcache keeps files by their SHA-256 in a directory that builds share, and
// removes those that no build has used for long.
//
// The package must never know what is in a file.
package pkgcache
