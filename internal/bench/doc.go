// Package bench measures what the product is judged by, each figure by itself:
// the pause of a source, the return of the call, the first command answered in a
// child, all children ready, memory and processor time per child, and the same
// work done by stock runsc on the same machine in the same run.
//
// All times are taken by a client of the daemon, as a user would see them. It
// must never know the engine, and never reports a figure that it did not
// measure: what cannot be measured here is null, with the reason in a note.
package bench
