// Package service declares what a machine offers to the servers that face its users: the
// interfaces, by area, and the types of their inputs and outputs that have no form on the
// wire.
//
// A server translates one protocol into calls of these interfaces, and package node
// implements them. The package must never know a protocol or an implementation: it imports
// only the vocabulary and who the caller is.
package service
