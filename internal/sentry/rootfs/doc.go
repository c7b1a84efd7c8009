// Package rootfs is the sandbox's root file system: package cowfs behind gVisor's
// VFS.
//
// It knows the meaning of system calls: who may do what, which names there are,
// what an open file and a mapping see. Where files are, and how a fork shares
// them, is package cowfs's. It must never know what a sandbox is.
//
// # Objects
//
// An inode exists in memory while a dentry refers to it, a dentry while somebody
// uses it, and some longer, so that the next lookup is quick. Before a save those
// that nobody uses are dropped: the saved state is as large as what is open, not
// as what exists. Attributes are changed in the inode and written to the tree when
// the inode goes, and before a pin.
//
// # Locks
//
//	filesystem.mu            names: dentries' parents and names, entries in directories
//	  inode.mu               one writer, truncation or change of attributes at a time
//	    filesystem.moveMu    pages move and mappings do not know yet
//	      inode.mapsMu       who maps the file
//	        (mm.activeMu)    gVisor's, of an address space
//	          cacheMu, inodesMu
//	            inode.attrMu attributes
//	              dirtyMu, refsMu, and cowfs.FS's own lock
//
// Translate and the copies between guest memory and files run below mm.activeMu,
// so they must not take anything above it.
package rootfs
