// Package snapdir writes snapshots to disk, and checks what it finds there.
//
// A snapshot on disk is a directory with up to three files:
//
//	state   a snapshot file (package snapfile) without memory
//	memory  the snapshot's own pages of memory
//	files   the snapshot's own pages of files
//
// The last two are sparse: everything is at the place that it has in the sandbox. What
// a base, an earlier snapshot, has at the same place is not copied; the state refers to
// the base's file as a generation called ID/FILE. A directory is written beside its place
// and renamed, so a directory of that name is complete. Files that are written anew
// have a version behind a dot.
//
// Part describes one of the files with a digest. The digest covers the pages that are
// not zero, each with its place: it does not depend on where holes are.
//
// The package must never know what a sandbox is, which snapshots there are or who needs
// whom: its callers say what is compared with what, and whose files may be referred to.
package snapdir
