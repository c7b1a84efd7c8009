// Package outside is what sandboxes reach in the measurements of the network: a server in this
// process, and Guest, the program in the sandbox that measures.
//
// It must never know what kind of sandbox it serves.
package outside

import _ "embed"

// Guest defines the functions network and hold in Python.
//
//go:embed guest.py
var Guest string
