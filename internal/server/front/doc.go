// Package front has the guards that all servers of the daemon share: who a request is from, and for how long.
//
// It must never know what a request asks for.
package front
