// Package network has the commands about what a sandbox may reach.
//
// It never decides anything about a connection: the daemon does, and these commands show what it
// says.
package network
