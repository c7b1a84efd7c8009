// Package volumes has the commands about directories that sandboxes share.
//
// It must never know how the daemon keeps them.
package volumes
