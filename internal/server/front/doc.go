// Package front has the guards that all servers of the daemon share: who a request is from, for how long,
// and how long its body may take.
//
// It must never know what a request asks for.
package front
