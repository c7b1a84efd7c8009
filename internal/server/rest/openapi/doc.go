// Package openapi completes the OpenAPI document of the interface: descriptions, examples,
// the answers of failure and the types that have a closed set of values.
//
// It only describes: it must never change what an operation does.
package openapi
