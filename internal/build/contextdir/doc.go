// Package contextdir reads the files of a build context: a directory, without the files that .dockerignore excludes.
//
// The directory is not trusted. All of its files are opened beneath it, so that no link and no path leads to other
// files of the host, and their number and size are bounded.
//
// The package must never know what a Dockerfile says, nor where its files go.
package contextdir
