// Package fs tests files of sandboxes: what a Linux program may expect of a file system, at random and by case, with
// forks in the middle; databases in them; and the file operations from outside. It has tests only,
// with real sandboxes: see package harness.
package fs
