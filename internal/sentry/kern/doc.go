// Package kern is the kernel of a guest as operations of the host side use it: its root
// directory, its users, the command lines of its tasks, and the values that operations share.
//
// It must never know when the kernel may be used: its callers hold the gate.
package kern
