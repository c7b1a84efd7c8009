// Package images has the commands about images: build, import, pull, list, remove and commit.
//
// It never reads an image: the daemon reads an imported path.
package images
