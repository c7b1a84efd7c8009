// Package images is the commands about images: build, import, pull, list, remove and commit.
//
// It never reads an image: a path that is imported is read by the daemon.
package images
