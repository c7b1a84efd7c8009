// Package dormant loads a guest's processes without processes of the host. Most processes of a sandbox that was
// forked wait in a system call, and many do so for as long as it lives. Such a process repeats the call when it is
// loaded, for which its own code need not run: the package does what the processor would. It gets a process of the
// host when its code has to run, or when something is mapped there.
//
// Without it, a child waits a millisecond or two for each process of the host.
//
// It must never know what a sandbox is, nor where memory comes from.
package dormant
