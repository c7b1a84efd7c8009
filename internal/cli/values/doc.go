// Package values is the options of commands that have a form of their own, and the parsers of
// arguments: sizes, times, pairs, names and lifecycles.
//
// It only parses. Whether a value is allowed is judged by package api, here or in the daemon.
package values
