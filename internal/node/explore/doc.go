// Package explore forks a sandbox into attempts, lets each run a command or code, scores them,
// stops the losers, and promotes or merges the winners.
//
// An exploration belongs to the daemon and not to the request that began it: it goes on when its
// client is gone. One goroutine leads each exploration from state to state (States has the table),
// and waits for the goroutines of its attempts, of which none outlives it.
//
//	plan ─► fork ─► run and score each attempt ─► choose ─┬─► fork or run again (next round)
//	                                                      └─► promote, merge or keep ─► destroy the losers
//
// Nothing is left behind by a daemon that is killed. The record of an exploration is stored before
// its first fork, and the attempts have its id in their metadata, which the transaction of the fork
// stores. The next daemon destroys the attempts of an exploration that was running, and ends what
// an exploration was finishing: a promotion that is repeated does only what is left of it.
//
// Lock order: Explorer.mu before run.mu. No lock is held while a sandbox is used.
//
// The package never forks, runs, compares or destroys itself: it knows neither instances of
// sandboxes nor sentries nor files on disk.
package explore
