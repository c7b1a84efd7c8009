// Package values parses options and arguments: sizes, times, pairs, names and lifecycles.
//
// It only parses. Whether a value is allowed is judged by package api, here or in the daemon.
package values
