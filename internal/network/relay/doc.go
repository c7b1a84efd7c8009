// Package relay carries the bytes of one flow between a guest's end and a server's.
//
// The bytes stay in the kernel: each direction waits until there is something to read, borrows
// a pipe, splices into it and out of it, and gives it back. io.Copy does the same, but holds
// six descriptors for as long as the connection lives.
//
//	guest's end (socket pair)  ──► pipe ──►  server's end (TCP, or a socket pair)
//	                           ◄── pipe ◄──
//
// A direction ends by itself: the end of what one side sends is passed on as a shutdown, and
// the other direction goes on. A direction reads nothing before the other side can take it, so
// that a side that never reads costs no pipe.
//
// The package must never know why a flow is allowed, nor on which channel it was asked for.
package relay
