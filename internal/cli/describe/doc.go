// Package describe is what several commands say of sandboxes, snapshots and processes, in a few
// words each.
//
// It never asks a daemon, and only describes what it is given.
package describe
