// Package reseed makes random generators of programs take a new seed in each copy of a sandbox:
// in a child of a fork, after a restore and after a rollback.
//
// A generator in user space is copied with its state like all other memory, so every copy would
// make the same "random" keys. OpenSSL's generator, which Node, Python's ssl, PostgreSQL, nginx
// and many more use, has a remedy for fork(2): before it generates it calls getpid(2), and takes
// a new seed from the kernel if the result has changed. Getpid returns a different number in
// each copy to this caller and to no other (getpid.go). It recognizes the caller by its code,
// which refers to its own name for the errors that it reports (caller.go). That reference exists
// in shared libraries and in statically linked programs, stripped or not.
//
// Node keeps random bytes of OpenSSL ahead: RenewNode replaces them (node.go).
//
// The package must never know what a sandbox is. The memory of a program may hold anything: all
// reading of it is bounded.
package reseed
