// Package harness is what the suites of tests with real sandboxes share. A suite is a
// package beside this one: fork, process, fs, compare, snapshot, image, network or node. Each has a
// test binary of its own, and suites run side by side.
//
// A test has a node in its process, sentries that are the test binary started again, and
// one program in an image (see test/guest). It needs no network and no root. Main lets the
// binary be all of that.
//
// Suites are built with CGO_ENABLED=0, as the product is: a sentry gives up its privileges
// in all threads, which Go can do without cgo only.
//
// Every test has directories of its own and ends with nothing left: no process, descriptor,
// goroutine, socket, log, temporary file or control group. That is checked for each of them,
// and counts what the node of the test made: another suite may be at work.
//
// The package must never know what a test is about: what only one suite needs is there.
package harness
