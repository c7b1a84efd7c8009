// Package registry fetches container images of registries: it picks the image for this machine, goes
// on with blobs whose connection breaks, and gives errors of registries a code.
//
// The package must never know what becomes of an image.
package registry
