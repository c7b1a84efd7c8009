// Package memfiles keeps the memory files that living state refers to open, and
// counts who refers to each.
//
// The state of a sandbox is spread over files, its generations: its own file of
// memory, its own file of pages of files, those of what it descends from, and parts of
// snapshots on disk. Each has a name that all who refer to it agree on. A file stays
// open while anybody holds a reference on its name, whatever became of the sentry that
// wrote it, and is closed with the last reference.
//
// The package never reads a file and must never know what a sandbox, a freeze or a
// snapshot is. A Table is safe for concurrent use; its lock is a leaf: nothing else is
// locked while it is held.
package memfiles
