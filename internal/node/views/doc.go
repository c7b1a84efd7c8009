// Package views opens the files of sandboxes and snapshots at one moment, for all that
// reads them from outside: diffs, merges, commits, exports.
//
// The files of a running sandbox are pinned by its sentry until the view is closed; those of
// a hibernated one are those of its snapshot.
//
// The package must never know what is done with a view.
package views
