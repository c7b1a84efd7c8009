// Package route registers the operations of the interface with the REST framework: how an
// operation is described, which input its handler gets, which form its answer has.
//
// It knows the framework and no operation. It must never call the service.
package route
