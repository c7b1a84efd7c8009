// Package tunnel joins two connections: the bytes of each go to the other, and each direction
// ends by itself.
//
//	client ──► port    copied; the end of what the client sends is passed on
//	client ◄── port    copied; the end of what the port sends is passed on
//
// A client that is gone is found although nothing is read from it, because a client that only
// ended its direction waits for an answer.
//
// The package must never know what the connections are for, nor who asked for them.
package tunnel
