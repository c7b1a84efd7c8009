// Package dataplane has the operations inside of sandboxes: on commands, processes,
// interpreters, files and ports.
//
// A handler checks the form of a request, calls the service and frames the input and output
// meanwhile. It must never decide anything that another protocol would have to decide too.
package dataplane
