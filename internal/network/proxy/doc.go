// Package proxy stands between programs in sandboxes and servers whose names have rules:
// it ends TLS with a certificate of the sandbox's tree, lets requests pass that the rule
// allows, puts secrets into them, and speaks TLS to the server itself.
//
//	guest ── TLS, HTTP/1.1 or HTTP/2 ──► checks ──► effects ──► secrets ── TLS ──► server
//	                                     rule       hold,       masks of
//	                                                record      answers
//
// A flow is for one name: what its connection was opened for must be the name of each
// request. The address is not the business of this package: it uses the connections that the
// dial function of the flow makes, and no others.
//
// Bodies pass as they come, in both directions, and so do trailers, informational answers
// and WebSockets. Redirects are answers like others.
//
// Secrets are put in last, behind everything that could write a request down, and answers
// are masked first. The package must never tell a secret in an error, a record or an answer
// of its own, nor know which sandboxes there are or what they may reach.
package proxy
