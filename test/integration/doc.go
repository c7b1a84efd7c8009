// Package integration tests the engine with real sandboxes: a node in this
// process, sentries that are this test binary started again, and one program in
// an image (see guest). It needs no network and no root.
//
// It must be built with CGO_ENABLED=0, as the product is: a sentry gives up its
// privileges in all threads, which Go can do without cgo only.
//
// Every test has directories of its own and ends with nothing left: no process,
// descriptor, goroutine, socket, log, temporary file or control group. That is
// checked for each of them.
package integration
