// Package guestinit makes the program of the first process of every sandbox: a static x86-64
// program of one page that reaps orphans and does nothing else.
//
// It is written as a list of named instructions and encoded here, so that neither a toolchain
// nor a binary blob is needed and every byte can be checked against the Intel manual. It uses
// no memory but its page of text, opens no file, never exits and sleeps in the kernel while
// there is no orphan to reap. So a fork has nothing to do for it.
//
// The package must never know how the program gets into the sandbox, nor what else runs there.
// It exists for amd64 only: the guest runs on the processor of the host, so building it for
// another one fails.
package guestinit
