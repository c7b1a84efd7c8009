// Package guestinit makes the program of the first process of every sandbox: a static program of
// one page that reaps orphans and does nothing else.
//
// It is written as a list of named instructions and encoded here, so that neither a toolchain
// nor a binary blob is needed and every byte can be checked against the processor's manual. It uses
// no memory but its page of text, opens no file, never exits and sleeps in the kernel while
// there is no orphan to reap. So a fork has nothing to do for it.
//
// The guest runs on the processor of the host, so the program is for the architecture that the
// package is built for.
//
// The package must never know how the program gets into the sandbox, nor what else runs there.
package guestinit
