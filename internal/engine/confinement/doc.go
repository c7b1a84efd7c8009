// Package confinement finds out which isolation of processes the machine allows, and asks for it: new
// namespaces, users of their own, an empty root.
//
// A probe does what a sentry will do, as the settings of a machine do not show what a container
// forbids. The package must never know what a sentry is for.
package confinement
