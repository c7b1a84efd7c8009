// Package kern is the kernel of a guest as the host side uses it: its root, its users and
// the command lines of its tasks, with the names and values that operations share.
//
// It must never know when the kernel may be used: its callers hold the gate.
package kern
