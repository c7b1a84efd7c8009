// Package inode has the files of a tree (package cowfs) while they are in memory: their
// attributes, their contents and where they are mapped.
//
// It must never know names: which directory has a file, how a path leads to it, and what an
// open file is are package rootfs's.
//
// # Objects
//
// A Table has the inodes of a tree. An Inode exists while a dentry refers to it. A change of
// its attributes is made in memory; the tree gets it when the inode goes, and before a pin.
// An Inode has three layers, each of which knows only those before it:
//
//	attributes   the number, times, permissions
//	contents     bytes, and mappings of them
//	Inode        extended attributes, locks, watches, the ends of fifos and sockets
//
// hostFiles are the files of the host that pages are in. It knows which pages address spaces
// refer to, so that a page that the tree gives up is not used again while it is mapped.
//
// # Locks
//
//	Inode.mu               one write, truncation or change of attributes at a time
//	  hostFiles.moveMu     pages move and mappings do not know yet
//	    Inode.mapsMu       mappings of the file
//	      (mm.activeMu)    gVisor's, of an address space
//	        Table.mu       inodes in memory
//	          Inode.attrMu attributes
//	            Table.dirtyMu, hostFiles.refsMu, and cowfs.FS's own lock
//
// Translate and the copies between guest memory and files run below mm.activeMu, so they
// must not take a lock above it.
package inode
