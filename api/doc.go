// Package api is Ramet's vocabulary: identifiers, states, requests,
// results and errors, exactly as REST and the CLI show them.
//
// Every other package speaks in these types, so it imports nothing but the
// standard library and must never know how a sandbox is made, stored or
// reached.
package api
