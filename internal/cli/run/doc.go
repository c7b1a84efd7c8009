// Package run has the commands that run code in a sandbox and stay connected to it: exec, shell,
// run-code and attach.
//
// It only connects streams and terminals with processes: package processes lists them.
package run
