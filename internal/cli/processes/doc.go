// Package processes is the commands about what runs in a sandbox already: its processes, their
// output, and the ports that they listen on.
//
// It never starts a process.
package processes
