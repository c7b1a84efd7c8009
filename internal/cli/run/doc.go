// Package run is the commands that run code in a sandbox and stay connected with it: exec,
// shell, run-code and attach.
//
// It only connects streams and terminals with processes: which processes there are is shown by
// package processes.
package run
