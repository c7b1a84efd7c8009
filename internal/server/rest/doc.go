// Package rest is Ramet's REST interface /v1: it decodes and checks
// requests, calls a Service, and encodes results, streams and errors.
//
// It knows HTTP and the vocabulary of package api. It must never know how a
// Service does its work, nor how connections to it are accepted.
package rest
