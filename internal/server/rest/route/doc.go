// Package route registers operations with the REST framework: the description of an operation,
// the input of its handler and the form of its answer.
//
// It knows the framework and no operation. It must never call the service.
package route
