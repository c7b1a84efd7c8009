// Package client is the Go client of a Ramet daemon.
//
// [New] and [Open] return a [Client], whose fields are services by area: Sandboxes, Processes,
// Files, Snapshots and so on. Their requests and results are types of package api. A sandbox
// is named by its id or its name in all calls.
//
// Errors are found with errors.As as an *api.Error, whose Code programs may decide on; api.CodeOf
// returns it. A daemon that cannot be reached, or ends meanwhile, is api.CodeUnavailable; a
// context that ends is api.CodeCanceled or api.CodeTimeout. A call whose daemon or sandbox is killed has
// its error within 2 s.
//
// Calls that stream, such as [Processes.ExecStream], call the functions and writers that they are
// given from one goroutine at a time, and never after they returned.
//
// The package must never know how a daemon is found or started.
package client
