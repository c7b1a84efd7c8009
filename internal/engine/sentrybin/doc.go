// Package sentrybin has the sentry's program embedded, so that there is one file to
// install.
//
// A sentry is a program of its own because it starts for every sandbox: the packages that
// the daemon and the command line are linked with would cost each sandbox milliseconds and
// a megabyte. `make build` builds it into the directory elf first.
//
// It also has the command by which a sandbox controls itself, which is written into
// sandboxes with self-control.
//
// The package must never know what the programs do.
package sentrybin
