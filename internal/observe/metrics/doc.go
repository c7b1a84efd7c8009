// Package metrics counts what a daemon does, for Prometheus.
//
// It is told by whoever does the work, and must never know who that is, what is in
// sandboxes or what they are called: labels are words of the program.
package metrics
