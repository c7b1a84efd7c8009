// Package api is the vocabulary of Ramet: identifiers, states, requests, results and errors, as
// the REST interface, the Go client and the command line show them.
//
// Users of package client build requests of these types and get results of them. A zero field of
// a request is absent: the daemon uses its default. Units are part of names: _ms are milliseconds,
// _mib are 2^20 bytes, and sizes without a unit are bytes. Times are in UTC.
//
// Each failure is an *Error with a [Code] that is never renamed; [CodeOf] returns the code of any
// error. Functions that begin with Valid, and methods called Valid, check the form of requests, in
// clients and in the daemon alike.
//
// openapi.json in this directory describes the REST interface in these types. It is generated.
//
// The package imports nothing but the standard library. It must never know how a sandbox is made,
// stored or reached.
package api
