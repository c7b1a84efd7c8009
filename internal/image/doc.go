// Package image keeps root file systems: a content-addressed store of EROFS images, which
// several owners see under names of their own, and the importers that make images of
// directories, archives and registries.
//
// An image is known by the SHA-256 of its file. Its id is derived from that
// digest, and the digest covers the configuration too (environment, command,
// user), through the UUID in the superblock: two images of one id are the same in
// every respect.
//
// Every import streams: contents go to the image while they are read, so memory
// use depends on the number of files only. Input is untrusted. Paths are resolved
// in an in-memory tree and never touch the host's file system; sizes, counts and
// compression ratios are bounded by Limits; contents are checked against the
// digests that their archive states. A refused import leaves nothing behind.
//
// Package catalog keeps the files: it knows their places and the order in which they are
// written, so that a crash leaves no reference to a missing file.
//
// The package must never know what a sandbox is or which images are in use: the caller of
// Remove reports it.
package image
