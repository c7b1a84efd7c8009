// Package cgroup puts limits on a sandbox, which is a group of host processes: a sentry
// and its ptraced stubs.
//
// Detect looks at what the machine offers without changing anything: cgroup v2
// with the memory, cpu and pids controllers delegated to this process, cgroup v1 with the
// controllers mounted one by one, or nothing. The groups lie in one directory
// below the caller's own group, so the limits of the daemon's group apply to its
// sandboxes too.
//
// The package must never know what runs in a group, nor decide what to do when
// there are no control groups: it reports ErrUnavailable and the caller refuses
// or goes on.
//
// Cost: making a group, limiting it and entering it takes a few hundred microseconds,
// as long as a process enters by itself and has one thread. To move another process, or a
// process with several threads, the kernel lets no thread of the machine fork or exit and
// waits for an RCU grace period first, 5 to 15 ms on a quiet machine.
package cgroup
