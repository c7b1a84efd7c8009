// Package describe formats sandboxes, snapshots and processes for the commands that print them.
//
// It never asks a daemon, and only formats what it is given.
package describe
