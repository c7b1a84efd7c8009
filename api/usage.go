package api

// Usage is what a daemon has at a moment, all sandboxes together.
type Usage struct {
	Sandboxes map[State]int
	Snapshots map[SnapshotState]int
	// PoolReady is how many blank processes wait to become sandboxes.
	PoolReady int
	// Pins is how many moments of sandboxes are kept in memory, for children and
	// snapshots.
	Pins int
	// PrivateBytes is the memory in files that one sandbox alone maps, and
	// SharedBytes in those that others may map too. Neither has what the processes
	// of sandboxes need besides.
	PrivateBytes, SharedBytes int64
}
