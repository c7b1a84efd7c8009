// Package stages measures the stages of an operation for its reply.
//
// It must never know the meaning of a stage.
package stages
