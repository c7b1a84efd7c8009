// Package compare tests comparisons of relatives: of files and of processes, and merges. It has tests only,
// with real sandboxes: see package harness.
package compare
