// Package interpreter answers what clients of E2B's code interpreter ask: cells and contexts. The
// interpreters are those of the sandbox.
//
// The package must never know who may call: it is told which sandbox is meant.
package interpreter
