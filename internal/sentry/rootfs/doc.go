// Package rootfs is the sandbox's root file system: the names of files, and gVisor's VFS in
// front of them.
//
// It knows the meaning of system calls: which caller may do what, how a path leads to a
// file, what an open file is. A file itself is package inode's while it is in memory. Where
// files are, and how a fork shares them, is package cowfs's. It must never know what a
// sandbox is.
//
// # Objects
//
// A dentry is a name of an inode. It exists in memory while it is used, and some longer, so
// that the next lookup is quick. Before a save unused dentries are dropped: the size of the
// saved state depends on the files that are open, not on all files.
//
// names has the dentries and resolves paths. fileOps has the operations on the file at a
// path, filesystem those that make, move and remove names. Both work on dentries: an
// operation that takes several steps is a type of its own (removal, renaming).
//
// # Locks
//
//	names.mu                        parents and names of dentries, entries in directories
//	  Inode.mu, hostFiles.moveMu, Inode.mapsMu
//	    (mm.activeMu)               gVisor's, of an address space, which may release files
//	      names.cacheMu             children of dentries
//	        names.ancestryMu        parents and names, for readers that do not hold names.mu
//	        Table.mu and the locks below it
//
// The locks that are not of names are package inode's.
package rootfs
