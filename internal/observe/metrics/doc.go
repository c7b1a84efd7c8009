// Package metrics counts the operations of a daemon and measures its resources, for Prometheus.
//
// The packages that do the work call it. It must never know them, nor the names or contents of
// sandboxes: labels are words of the program.
package metrics
