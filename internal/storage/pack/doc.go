// Package pack writes a sandbox's files in the forms that other programs read: a layer of
// the changes, an archive of an image, and the tree of an image of Ramet's own.
//
// All three have the same files (walk.go): those of the sandbox, except paths that stay as
// the image has them. So the layer on top of the image, the archive and the tree are the
// same file system. Sockets are left out, since archives have no form for them.
//
// Everything streams, in one order: names by their bytes, a directory before its entries.
// The same files give the same bytes. Memory holds the names of one directory at each
// level, and one path of each file with several names.
//
// The package must never know what a sandbox or an image store is, nor trust the files: it
// reads them through package cowfs, and bounds depth and number itself.
package pack
