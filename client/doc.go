// Package client talks to a Ramet daemon over REST. Errors of the daemon come
// back as the *sandbox.Error they were, wrapped in the problem document.
//
// It must never know how a daemon is found or started.
package client
