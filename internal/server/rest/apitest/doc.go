// Package apitest is for tests of clients of the REST interface: a Service made of functions,
// and a server for it on a unix socket.
//
// It must never be imported by code that is not a test.
package apitest
