// Package codectx runs code in the interpreters of a sandbox: each context is one
// interpreter at a time, with a queue of runs. A child inherits interpreters with what they
// have in memory, and gives their random generators new seeds.
//
// Lock order: the gate, interpreter.writing, the gate's accesses, Contexts.mu,
// interpreter.mu.
//
// The package must never know what code does, nor how an answer reaches its caller.
package codectx
