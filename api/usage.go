package api

import "time"

// Usage is the resources of a daemon at a moment, of all sandboxes together.
type Usage struct {
	Sandboxes map[State]int
	Snapshots map[SnapshotState]int
	// PoolReady is the number of blank sentries in the pool.
	PoolReady int
	// Pins is the number of freezes that are kept in memory, for children and snapshots.
	Pins int
	// PrivateBytes is the memory in files that a single sandbox maps, and SharedBytes in
	// files that others may map too. Neither includes the private memory of the processes of
	// sandboxes.
	PrivateBytes, SharedBytes int64
	// Gateway is nil while no gateway runs.
	Gateway *GatewayUsage
	// GatewayRestarts counts the gateways that were started in place of one that had ended while
	// sandboxes needed it.
	GatewayRestarts int64
	// Published is the published ports.
	Published PublishedUsage
}

// PublishedUsage is the published ports of a daemon and their use since its start.
type PublishedUsage struct {
	// Ports is how many there are, and Connections how many of them are open.
	Ports, Connections int
	// Accepted are connections, and Refused requests without the token.
	Accepted, Refused int64
}

// GatewayUsage is what the gateway of a daemon has and did. What counts begins at its start.
type GatewayUsage struct {
	Sandboxes, Flows int
	// Decisions by verdict: of flows, look-ups of names and requests.
	Decisions map[NetworkVerdict]int64
	// Questions are look-ups of names, and Requests the requests of HTTP that were looked at.
	Questions, Requests int64
	// Dropped are messages of sandboxes that sent too many, and ProtocolErrors sandboxes that broke
	// the protocol.
	Dropped, ProtocolErrors int64
	// BytesIn and BytesOut are of flows that have ended, to and from sandboxes.
	BytesIn, BytesOut int64
	// Waiting are held requests that wait for a verdict, Unknown those that may have been sent, and
	// HeldBytes the bodies of both. OldestHeld is how long the oldest has waited, 0 if none does.
	Waiting, Unknown int
	HeldBytes        int64
	OldestHeld       time.Duration
	// Tenants are those that have a sandbox with a network, or something that bounds their networks.
	Tenants []TenantTraffic
}

// TenantTraffic is what the networks of a tenant do and did. What counts begins with its first sandbox.
type TenantTraffic struct {
	Name              string
	Connections       int
	BytesIn, BytesOut int64
	Questions         int64
	// Refused is what quotas did not allow.
	RefusedConnections, RefusedQuestions int64
}

// Memory is the memory that a sandbox occupies on the host.
type Memory struct {
	PrivateMiB float64 `json:"private_mib" doc:"pages that only this sandbox has: guest memory and its kernel's"`
	SharedMiB  float64 `json:"shared_mib" doc:"frozen pages shared with relatives"`
}

// Disk is the disk space of a sandbox's files, without those of its image.
type Disk struct {
	UsedMiB    float64 `json:"used_mib" doc:"all differences from the image, of the sandbox and its ancestors: the limit bounds it, and df shows it in the sandbox"`
	LimitMiB   int64   `json:"limit_mib,omitempty" doc:"the limit; absent without one"`
	PrivateMiB float64 `json:"private_mib" doc:"size of the sandbox's own file on the host's disk: the pages that it wrote, also if only its children or snapshots still use them, without those of its ancestors; if it is hibernated, the size of its state on disk with its memory"`
}

// Trace has the tasks of a sandbox, the stacks of its kernel and the end of the kernel's log.
type Trace struct {
	Now string `json:"now" doc:"tasks of the sandbox, one a line with thread, process and state, then the stacks of its kernel; at most 64 KiB"`
	// Missing says why Now is empty.
	Missing string `json:"missing,omitempty" doc:"why there is no trace: the kernel did not answer"`
	Log     string `json:"log" doc:"end of the log of the sandbox's kernel, which traces commands that have not started within 10 s; at most 256 KiB"`
}

// Stats has the resources that a sandbox uses now. A sandbox that is hibernated, or still being
// made, has no memory and no processes.
type Stats struct {
	State      State   `json:"state" doc:"state of the sandbox"`
	Memory     Memory  `json:"memory" doc:"memory that it occupies"`
	Disk       Disk    `json:"disk" doc:"disk that its files occupy"`
	CPUSeconds float64 `json:"cpu_seconds" doc:"processor time in all"`
	Processes  int     `json:"processes" doc:"number of processes"`
}
