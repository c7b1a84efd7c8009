// Package machine says where metrics were measured, and what else happened there meanwhile.
//
// The package must never know the metrics.
package machine
