// Package cowfs keeps a sandbox's files: the image's, and what the sandbox made
// of them, in a form that a fork shares instead of copying.
//
// All that differs from the image is in one B+tree of 4 KiB pages, and in the
// data pages that it points to (store.go, tree.go). Pages are numbered along a
// line of descent and never change once a fork or a snapshot pinned them: who
// wants to change one writes another, and the path to it, in a file of its own.
// A fork therefore hands over one page number and some descriptors, however many
// files there are; a diff walks only the pages that two trees do not share
// (view.go, changes.go).
//
// # Keys
//
// A key is an inode number, a letter and a rest, so that all of an inode lies
// together:
//
//	ino 'a'                    attributes (attr.go)
//	ino 'd' name               directory entry, or a whiteout of the image's (dir.go)
//	ino 'e' block              extent: file blocks → pages, or a hole (data.go)
//	ino 'l' chunk              target of a symbolic link
//	ino 'r' parent name        where an entry for this inode is; for paths in a diff
//	ino 'x' name 0 chunk       extended attribute
//	ino 'x'                    the image's extended attributes do not count (xattr.go)
//
// Inode numbers below FirstIno are the image's. An inode of the image has
// attributes in the tree only if something about it changed; its number, and so
// its hard links, its entries in directories and open files, stay what they are.
// There is no copying up: a changed page of a large file of the image is one
// page here, and renaming a directory of the image is one entry.
//
// The package knows nothing of gVisor, and of neither sentry nor daemon: the
// sentry writes trees through FS, the daemon reads them through View.
package cowfs
