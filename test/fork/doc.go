// Package fork tests forks: that memory, files, sockets and processes of every kind are in the children, and that
// parents, children and the host pay what they should for it. It has tests only,
// with real sandboxes: see package harness.
package fork
