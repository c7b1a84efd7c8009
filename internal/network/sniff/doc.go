// Package sniff finds the name that a client asks for in the first bytes that it sends: the
// server name of TLS, or the Host of HTTP. The bytes stay where they are.
//
// It must never know which names are allowed.
package sniff
