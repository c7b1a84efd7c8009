// Package workload is the work that shows what a fork is worth, done by a client
// against a daemon: a sandbox with a warm Python process that serves requests on
// what it has in memory, forks of it with each of their times taken, and a
// session that ends all it made. The demonstration and the measurements share
// it, so that one shows what the other measures.
//
// It must never know the engine: what it says, any user of the client could find
// out.
package workload
