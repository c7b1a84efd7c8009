// Package codectx runs code in the interpreters of a sandbox: a context has one interpreter
// at a time, and a queue of runs. A child inherits interpreters with their memory, and their
// random generators get new seeds.
//
// Lock order: the gate, interpreter.writing, the gate's accesses, Contexts.mu,
// interpreter.mu.
//
// The package must never know the meaning of code, nor how an answer reaches its caller.
package codectx
