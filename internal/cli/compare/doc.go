// Package compare is the commands that compare sandboxes and merge their changes. It only shows
// what the daemon found: it never compares files by itself.
package compare
