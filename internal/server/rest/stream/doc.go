// Package stream has the bodies that are not one JSON document: events, frames, WebSockets and
// archives on the way out, and uploads of any length on the way in. Each begins with its first
// write, so that a failure before it is still answered with a status.
//
// It knows how bytes are framed and when they end. It must never know what they mean.
package stream
