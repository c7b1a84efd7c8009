// Package compare has the commands that compare sandboxes and merge their changes.
//
// It only prints the results of the daemon, and never compares files by itself.
package compare
