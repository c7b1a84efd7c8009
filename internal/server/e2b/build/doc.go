// Package build makes templates of E2B's instructions: of an image or a template, by commands, copied files,
// variables, directory and user, with a program that is started and waited for. A template is a snapshot of
// the sandbox in which all of this was done.
//
// Builds are known to the daemon that began them only. Files that clients upload for them are kept for an
// hour.
//
// The package must never know who may build, nor where the first files come from: it is told.
package build
