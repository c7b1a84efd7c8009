package main

import "golang.org/x/sys/unix"

// makers returns a constructor for every item.
func makers(bulkMiB int) map[string]func() (item, error) {
	return map[string]func() (item, error){
		// Memory.
		"heap":        newHeap,
		"bulk":        func() (item, error) { return newBulk(bulkMiB, unix.MAP_PRIVATE) },
		"shared-bulk": func() (item, error) { return newBulk(2, unix.MAP_SHARED) },
		"dontfork":    newDontFork,
		"private-map": newPrivateMap,
		"shared-map":  newSharedMap,
		"shm-file":    newShmFile,
		"memfd":       newMemfd,
		"forked":      newForked,
		"strata":      newStrata,
		"sysv-shm":    newSysvShm,
		"crowd":       newCrowd,
		"twins":       newTwins,
		// Files.
		"files":   newFiles,
		"deleted": newDeleted,
		"offset":  newOffset,
		"lock":    newLock,
		"cwd":     newCwd,
		"mount":   newMount,
		"proc":    newProc,
		"inotify": newInotify,
		// Streams.
		"pipe":     newPipe,
		"ring":     newRing,
		"fifo":     newFifo,
		"pty":      newPty,
		"tcp":      newTCP,
		"chatter":  newChatter,
		"unix":     newUnixPair,
		"udp":      newUDP,
		"eventfd":  newEventfd,
		"fd-limit": newFDLimit,
		// Time and signals.
		"timerfd": newTimerfd,
		"itimer":  newItimer,
		"signal":  newSignal,
		"pending": newPending,
		// Processes and threads.
		"child":     newChild,
		"threads":   newThreads,
		"stopped":   newStopped,
		"registers": newRegisters,
	}
}
