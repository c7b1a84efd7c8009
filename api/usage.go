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

// Memory is what a sandbox occupies on the host.
type Memory struct {
	PrivateMiB float64 `json:"private_mib" doc:"pages that only this sandbox has: guest memory and its kernel's"`
	SharedMiB  float64 `json:"shared_mib" doc:"frozen pages shared with relatives"`
}

// Disk is what a sandbox's files take besides those of its image.
type Disk struct {
	UsedMiB    float64 `json:"used_mib" doc:"all that differs from the image, whoever wrote it: what the limit bounds, and what df shows in the sandbox"`
	LimitMiB   int64   `json:"limit_mib,omitempty" doc:"the limit; absent without one"`
	PrivateMiB float64 `json:"private_mib" doc:"what the sandbox's own file takes of the host's disk: the pages it wrote, those that only its children or snapshots still have too, but none of its ancestors'; of a hibernated one what is kept of it on disk, memory included"`
}

// Stats is what a sandbox uses now. One that is hibernated, or still being made, has
// no memory and no processes.
type Stats struct {
	State      State   `json:"state" doc:"where the sandbox is in its life"`
	Memory     Memory  `json:"memory" doc:"what it occupies in memory"`
	Disk       Disk    `json:"disk" doc:"what its files take"`
	CPUSeconds float64 `json:"cpu_seconds" doc:"processor time in all"`
	Processes  int     `json:"processes" doc:"number of processes"`
}
