// Package httpwire is what travels between the REST server and its Go client:
// problem documents, lists, server-sent events and WebSocket frames. Both sides
// use the same code, so they cannot disagree.
//
// It must never know a route, a connection or a service.
package httpwire
