// Package workload is the work that shows the value of a fork, done by a client against a daemon: a
// sandbox with a warm Python process that answers requests from its memory, forks of it with all of
// their times, and a session that destroys everything that it made. The demonstration and the
// benchmark share it, so that one shows what the other measures.
//
// It must never know the engine: any user of the client could find out the same.
package workload
