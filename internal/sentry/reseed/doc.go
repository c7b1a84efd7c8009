// Package reseed makes random generators of programs draw a new seed in a copy of them:
// in a child of a fork, after a restore and after a rollback.
//
// A generator in user space is copied with its state like all other memory, so that every
// copy makes the same "random" keys. OpenSSL's generator, which Node, Python's ssl,
// PostgreSQL, nginx and many more draw from, has a remedy for fork(2): before it generates
// it asks getpid(2), and takes a new seed from the kernel if the answer is another than
// before. Getpid gives this caller, and no other, an answer that is another in each copy
// (getpid.go). It knows the caller by its code, which refers to its own name for the errors
// that it reports (caller.go): that is there in a shared library and in a program that is
// linked statically, stripped or not.
//
// Node draws ahead from OpenSSL: RenewNode replaces what it has drawn (node.go).
//
// It must never know what a sandbox is. What it reads of a program's memory may be
// anything: no reading may be without bounds.
package reseed
