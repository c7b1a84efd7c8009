// Package access says on whose behalf something is done, and what they may do:
// tenants, scopes and the tokens that stand for them.
//
// A Caller travels in the context of a request from where a connection is
// accepted to where a reference is resolved, which is the one place that decides
// whether somebody sees a thing. Nothing in a request names a tenant.
//
// The package must never know what the things are that somebody may see, nor how
// requests reach it. It must never keep or write a token's secret.
package access
