// Package sandboxes has the commands that make, list, show, change and remove sandboxes.
//
// It never reaches into a sandbox: package run has the commands that run code, and package files
// those that copy files.
package sandboxes
