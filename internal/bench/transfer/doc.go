// Package transfer moves bytes between the benchmark and a sandbox, through the daemon.
//
// It must never know what is measured.
package transfer
