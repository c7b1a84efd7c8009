// Package stages measures the stages of an operation for its reply.
//
// It must never know what is done in them.
package stages
