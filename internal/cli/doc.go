// Package cli is the command line: one file for each group of verbs. It turns
// arguments into calls of the REST client and answers into tables, trees or
// JSON.
//
// It talks to a daemon only through package client; how a daemon is found,
// started or made is given to it in Deps. Everything here must be cheap to
// start: no package variable that takes time to make.
package cli
