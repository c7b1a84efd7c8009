// Package snapfile is the format of a frozen sandbox: one file, in memory or on
// disk, that a child is made from.
//
// It begins with a header page, little endian:
//
//	 0  magic "RAMETSNP"
//	 8  format version, uint32
//	12  number of sections, uint32
//	16  for each section: offset, length, both uint64
//
// The sections, in the order of the header:
//
//	pages        copied pages, page-aligned
//	index        the memory-file ranges of the copied pages: start, end
//	state        the kernel's state, gVisor's format
//	meta         the memory file's state, gVisor's format
//	table        extents of the memory file: start, end, generation
//	generations  the names of the generations, JSON array of strings
//	held         references in meta that freezes hold: start, end, count
//	files        the root of the file tree and the segments of its pages, JSON (Files)
//	outputs      the kept output of processes (output.go)
//
// A generation is an earlier memory file of the lineage that the sandbox still shares
// pages with; extents and segments refer to generations by their index.
//
// The package must never import gVisor: the daemon reads and rewrites these
// files, and it does not interpret state or meta.
package snapfile
