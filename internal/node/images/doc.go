// Package images is the service of images: it imports, pulls, builds, exports, commits,
// gives away and removes them for the tenants of a node.
//
// The contents of images are kept by internal/image; packages of distributions come from
// internal/image/debian.
//
// Lock order: Catalog.mu is held while Config.Users looks at sandboxes and snapshots.
//
// The package never starts a sentry nor opens the files of a sandbox: it is given scratch
// sandboxes and views.
package images
