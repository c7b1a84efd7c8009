// Package bench measures forks of sandboxes, each metric by itself: the pause of a source, the
// return of the call, the first command answered in a child, all children ready, memory and
// processor time per child, and the same work by stock runsc on the same machine in the same run.
//
// A client of the daemon takes all times, as a user would see them. The package must never know the
// engine, and never reports a metric that it did not measure: what cannot be measured here is null,
// and a note has the reason.
package bench
