// Package session is one run of the command line, as all commands share it: its streams and
// global options, its connection to a daemon, completion of names, and what commands do alike.
//
// It never knows a command.
package session
