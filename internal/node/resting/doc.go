// Package resting stops sandboxes and lets them go on: pause and resume, hibernation and
// wake, and what becomes of sandboxes that nobody uses.
//
//	Rester      pauses, resumes, hibernates, wakes; wakes for whoever uses a sandbox
//	Timers      when the times of each sandbox are to be looked at
//	Lifecycles  does what is due: idle timeouts, ends of time, memory that is short
//
// A hibernated sandbox is a record and a snapshot on disk that is its own: no list
// shows it, and no process belongs to it. To wake it is to load that snapshot under
// the same id; pages are read when they are used.
//
// The sandbox rests from its freeze on, so that nothing is lost that happened in it.
// That it is about to is written down before: a daemon that ends in the middle leaves
// a paused sentry, which the next one lets run (sandboxes.Recovery).
//
// The package must never know how sandboxes are made.
package resting
