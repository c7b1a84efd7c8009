// Package spawn makes the credentials, environment, limits, control group and standard streams
// of a process that the host side starts in a sandbox.
//
// It must never know what happens to the process later.
package spawn
