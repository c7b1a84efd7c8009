// Package console is the user's terminal and the text that is written to it: tables, sizes, ages,
// progress bars, colours, drawings, and the raw mode for terminals of sandboxes.
//
// It never talks to a daemon, and only prints values that it is given.
package console
