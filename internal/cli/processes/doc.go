// Package processes has the commands about running processes: list, output, signals, and the ports
// that they listen on.
//
// It never starts a process.
package processes
