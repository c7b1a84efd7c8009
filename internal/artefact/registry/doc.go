// Package registry pushes artefacts to container registries and pulls them.
//
// A blob that the repository has is not sent. Blobs are compared with their digests while
// they are fetched, and a download whose connection breaks is continued.
//
// The package must never know what is in a blob.
package registry
