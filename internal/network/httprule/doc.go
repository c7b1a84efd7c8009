// Package httprule says which requests of HTTP a rule means: lists of methods, and patterns
// of paths.
//
// Servers disagree about paths: some decode twice, some take a backslash for a slash, some
// cut parameters off a segment before they resolve dots. A path that two servers could
// read differently is therefore no path for this package: Canonical refuses it, and nothing
// is cleaned in silence. Headers that tell a server to take another method or path than
// those of the request are known here for the same reason.
//
// The package must never know where a request goes or what becomes of it.
package httprule
