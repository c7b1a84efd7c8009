// Package cowfs stores a sandbox's files: those of the image and the sandbox's changes of
// them, in a form that a fork shares instead of copying.
//
// All differences from the image are in a B+tree of pages (package btree), and in the data
// pages that it refers to. Pages are numbered along a line of descent and do not change
// once a fork or a snapshot has pinned them (package pages): a change of a pinned page
// writes another page, and the nodes on the path to it, to the sandbox's own file. A fork
// therefore hands over a page number and some descriptors, however many files there are; a
// diff reads only the pages that two trees do not share (package treediff).
//
// # Keys
//
// A key is an inode number, a letter and a rest, so that all keys of an inode are
// neighbours:
//
//	ino 'a'                    attributes (attr.go)
//	ino 'd' name               directory entry, or a whiteout of the image's (dir.go)
//	ino 'e' block              extent: file blocks → pages, or a hole (data.go)
//	ino 'l' chunk              target of a symbolic link
//	ino 'r' parent name        an entry that leads to this inode; for paths in a diff
//	ino 'x' name 0 chunk       extended attribute
//	ino 'x'                    the image's extended attributes do not count (xattr.go)
//
// Inode numbers below FirstIno are the image's. An inode of the image has attributes in the
// tree only if it changed. It keeps its number, and so its hard links, its entries in
// directories and open files. There is no copying up: a changed page of a large file of the
// image is one page here, and renaming a directory of the image changes two entries.
//
// The sentry writes a tree through FS, the daemon reads one through Files. FS has three
// layers, each of which knows only those below it: core.go has the attributes of inodes and
// counts space, contents.go has the data of files, fs.go names, links and extended
// attributes.
//
// The package must never know gVisor, a sentry or the daemon.
package cowfs
