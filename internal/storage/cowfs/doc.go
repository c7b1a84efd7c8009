// Package cowfs keeps a sandbox's files: the image's, and what the sandbox made
// of them, in a form that a fork shares instead of copying.
//
// All that differs from the image is in one B+tree of pages (package btree), and in the
// data pages that it points to. Pages are numbered along a line of descent and never
// change once a fork or a snapshot pinned them (package pages): a change of one writes
// another, and the path to it, in a file of its own. A fork therefore hands over one
// page number and some descriptors, however many files there are; a diff reads only
// the pages that two trees do not share (package treediff).
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
// The sentry writes a tree through FS, the daemon reads one through Files. FS has three
// layers, each of which knows only those below it: core.go has the attributes of inodes and
// the space that all takes, contents.go the data of files, fs.go names, links and extended
// attributes.
//
// The package must never know gVisor, a sentry or the daemon.
package cowfs
