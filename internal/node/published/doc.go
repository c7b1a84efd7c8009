// Package published listens on ports of the host that lead to TCP ports of sandboxes. A
// published port outlives the request that asked for it: it is stored with the sandbox, comes
// back with the next daemon and ends with the sandbox. Children of a fork do not inherit it,
// because two sandboxes cannot listen on one port.
//
//	Publisher   the published ports of all sandboxes; stores them, opens and closes them
//	└ group     the published ports of one sandbox, and the room for its connections
//	  └ endpoint  one listener: each connection is joined with one to the sandbox
//	                with a token, HTTP is served by a handler that refuses requests without it
//
// A port that cannot be listened on when a daemon starts stays published: its error is shown,
// and it is tried again every few seconds.
//
// Each goroutine belongs to the Publisher, whose Close waits for it. Lock order: Publisher.mu, endpoint.mu.
// Under the locks no sandbox is called.
//
// The package must never know what is said on connections, how a sandbox is reached, nor why a
// sandbox ends.
package published
