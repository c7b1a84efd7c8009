// Package spawn says how a process of a sandbox is made that the host side starts: with which
// credentials, environment, limits, control group and standard streams.
//
// It must never know what becomes of the process.
package spawn
