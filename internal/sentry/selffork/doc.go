// Package selffork forks the process that calls it, with all its threads.
//
// fork(2) duplicates the calling thread only, and a Go program needs the others: the collector,
// the monitor and all running goroutines are on them. So all threads but one are held in a
// signal handler while the process is cloned. The clone then makes each of them again, with the
// stack and the thread-local storage that it had, at the end of the same handler: the kernel's
// signal frame on that stack has its registers. Only values that refer to the kernel change:
// thread ids, which the runtime keeps, are replaced, and the poller's descriptors are made anew.
//
// The package relies on the place of m in the runtime's g, on the thread id within the first
// words of m, and on signals being handled on a stack of their own. On arm64 it also relies on the
// runtime's place for g while a thread is in the vDSO, which another program than one without cgo
// does not use. Its test fails if a toolchain changes one of these.
//
// A Copy has one thread only. It relies on the runtime needing no other one while it has a single
// processor, on threads without a processor holding no lock for longer than a moment, and on its
// poller being the one that an eventfd wakes.
//
// It must never know the purpose of the process, nor gVisor.
package selffork
