// Package cli is the command line. It turns arguments into calls of the REST client, and results
// into tables, trees or JSON.
//
// The package itself has the root command, help pages, man pages, the reference, the texts of
// errors, and the commands about the program. Each group of commands is a package below it, which
// gets a session.Session: the streams, the global options and the connection to a daemon. Package
// console writes to the terminal, package values parses options, and package describe formats
// results that several groups print.
//
// The command line talks to a daemon only through package client. How a daemon is found, started or
// run is given to it in Deps. Packages below cli never import each other sideways, except for those
// that all groups share. Starting must be cheap: no package variable takes time to make.
package cli
