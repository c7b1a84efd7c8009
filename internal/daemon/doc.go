// Package daemon runs the one process per user that owns the sandboxes, and
// finds or starts it: at most one per runtime directory, however many commands
// want it at once.
//
// Two file locks decide everything, so nothing is ever polled:
//
//	start.lock  held from before a daemon is looked for until it listens, by the
//	            command that starts it and then by the daemon, which inherits it
//	ramet.lock  held by a daemon for as long as it lives, its draining included
//
// Order: start.lock, then ramet.lock. Whoever holds start.lock and finds nobody
// listening may start; if ramet.lock is held then, its holder is draining and
// gives way.
//
// The package must never know what a Service does.
package daemon
