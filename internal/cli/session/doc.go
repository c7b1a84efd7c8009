// Package session is one run of the command line, as all commands share it: its streams and global
// options, its connection to a daemon, and the completion of names.
//
// It never knows a command.
package session
