// Package dataplane has the operations on what is inside of sandboxes: commands, processes,
// interpreters, files and ports.
//
// A handler checks the form of a request, calls the service and frames what goes in and out
// meanwhile. It must never decide anything that another protocol would have to decide too.
package dataplane
