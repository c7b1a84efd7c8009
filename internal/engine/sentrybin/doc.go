// Package sentrybin has the programs embedded that a daemon starts or hands to sandboxes, so that
// there is one file to install: the sentry, the gateway, and the command by which a sandbox with
// self-control controls itself.
//
// A sentry is a program of its own because it starts for every sandbox: the packages that
// the daemon and the command line are linked with would cost each sandbox milliseconds and
// a megabyte. `make build` builds it into the directory elf first.
//
// The package must never know what the programs do.
package sentrybin
