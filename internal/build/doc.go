// Package build carries out Dockerfiles with a daemon's interface: commands run in sandboxes, files are copied into
// them, and the result is committed as an image. The state after each step is a snapshot, which later builds find by
// its key.
//
// A build that fails or is interrupted destroys its sandboxes. If its process is killed, they end by their idle
// timeout.
//
// The package must never touch the daemon's files, nor know how a user asked for the build.
package build
