// Package paths knows the paths of all files of a daemon: those that live as long as the
// login session are below the runtime directory, those that survive it below the data
// directory.
//
// It is the only place that joins an identifier into a path, and it refuses a string that
// is no identifier. It must never read or write the file at a path, except to make the two
// directories.
package paths
