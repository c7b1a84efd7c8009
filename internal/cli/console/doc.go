// Package console is the user's terminal and the text that is written to it: tables, sizes,
// ages, progress bars, colours, drawings and the raw mode in which keys are passed on.
//
// It never talks to a daemon, and only shows values that it is given.
package console
