// Package catalog is the directory of an image store: the images' files, a record of each
// and the names, and the order in which they are written.
//
//	lock               flock taken for every change
//	blobs/DIGEST.erofs the images, read-only
//	blobs/.tmp-*       imports under way, each flocked by its process
//	records/ID.json    the record of an image, without its names
//	names.json         name to id
//
// Changes are made in an order that leaves no reference to a missing file: blob, record,
// name; removals go the other way. Open removes the files that a crash leaves over. Several
// processes may use one directory.
//
// The package must never know how an image is made or who may see it, and it looks into no
// image.
package catalog
