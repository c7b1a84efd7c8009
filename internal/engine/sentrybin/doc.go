// Package sentrybin carries the program that sandboxes run in, embedded, so that
// one file is all there is to install.
//
// A sentry is a program of its own because it starts for every sandbox: what
// the daemon and the command line are linked with would cost each of them
// milliseconds and a megabyte. `make build` builds it into the directory elf
// first.
//
// Besides that it carries the command by which a sandbox that may controls itself,
// which is written into such sandboxes.
//
// The package must never know what the programs do.
package sentrybin
