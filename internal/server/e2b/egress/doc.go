// Package egress translates the networks of E2B's clients to those of Ramet: hosts, ranges and headers become rules.
//
//	allowOut, denyOut    rules by address or name
//	rules                headers that the gateway puts into requests
//
// The package must never know which sandbox a network is for, nor who asks.
package egress
