// Package selffork forks the process that calls it, with all its threads.
//
// fork(2) duplicates the calling thread only, and a Go program is nothing without
// the others: the collector, the monitor and every goroutine that was running are on
// them. So all threads but one are held in a signal handler while the process is
// cloned, and the clone makes each of them again, with the stack and the thread-local
// storage that it had, at the end of the same handler: the kernel's signal frame,
// which lies on that stack, has its registers. No part of the program notices but
// those that keep what the kernel knows by number: thread ids, which the runtime
// keeps and are replaced, and the poller's descriptors, which are made anew.
//
// What it relies on (the test fails if a toolchain changes it): the place of m in the
// runtime's g, that m keeps the thread id within its first words, and that signals
// are handled on a stack of their own.
//
// It must never know what the process is for, and nothing of gVisor.
package selffork
