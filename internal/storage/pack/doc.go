// Package pack makes of a sandbox's files what others can use: a layer of the
// changes, an archive of an image, and a tree for an image of our own.
//
// All three are made of the same files (walk.go): what the sandbox has, but for
// paths that stay as the image has them. A layer on top of the image, the archive
// and the tree therefore are the same file system. Sockets are left out, since
// archives have no form for them.
//
// Everything streams, in one order: names by their bytes, directories before what
// is in them. The same files give the same bytes. What is held in memory is the
// names of one directory at each level, and one path for each file that has
// several names.
//
// The package must never know what a sandbox or an image store is, nor trust the
// files: it reads them through package cowfs, and bounds depth and number itself.
package pack
