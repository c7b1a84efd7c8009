package api

// Quota bounds the consumption of a tenant, or of a tree of sandboxes. Zero is no limit.
type Quota struct {
	Sandboxes  int64 `json:"sandboxes" minimum:"0" maximum:"1000000" required:"false" doc:"sandboxes at a time, including paused and hibernated ones"`
	Depth      int64 `json:"depth" minimum:"0" maximum:"1000" required:"false" doc:"generations of forks and restores below the first sandbox"`
	MemoryMiB  int64 `json:"memory_mib" minimum:"0" maximum:"16777216" required:"false" doc:"memory of running and paused sandboxes; shared memory counts once"`
	DiskMiB    int64 `json:"disk_mib" minimum:"0" maximum:"16777216" required:"false" doc:"files that sandboxes wrote, and snapshots on disk; shared data counts once"`
	CPUSeconds int64 `json:"cpu_seconds" minimum:"0" maximum:"1000000000000" required:"false" doc:"processor time in all, from the first sandbox on"`

	NetworkConnections int64 `json:"network_connections" minimum:"0" maximum:"1000000" required:"false" doc:"connections of sandboxes that are open at a time"`
	NetworkMbit        int64 `json:"network_mbit" minimum:"0" maximum:"1000000" required:"false" doc:"megabits per second in each direction"`
	NetworkDNSPerS     int64 `json:"network_dns_per_s" minimum:"0" maximum:"1000000" required:"false" doc:"look-ups of names per second"`
}

// Consumption has the resources that a tenant or a tree uses.
type Consumption struct {
	Sandboxes  int64   `json:"sandboxes" doc:"sandboxes, including paused and hibernated ones"`
	Depth      int64   `json:"depth" doc:"depth of the deepest sandbox"`
	MemoryMiB  float64 `json:"memory_mib" doc:"memory of running and paused sandboxes"`
	DiskMiB    float64 `json:"disk_mib" doc:"files that sandboxes wrote, and snapshots on disk"`
	CPUSeconds float64 `json:"cpu_seconds" doc:"processor time in all"`

	NetworkConnections int64   `json:"network_connections" required:"false" doc:"connections that are open"`
	NetworkMbit        float64 `json:"network_mbit" required:"false" doc:"megabits per second in the direction in which more passes, over the last five seconds"`
	NetworkDNSPerS     float64 `json:"network_dns_per_s" required:"false" doc:"look-ups of names per second, over the last five seconds"`
}

// Tenant is a tenant with its quotas and consumption.
type Tenant struct {
	Name  string      `json:"name" doc:"name of the tenant"`
	Quota Quota       `json:"quota" doc:"quota of all its sandboxes and snapshots together"`
	Tree  Quota       `json:"tree_quota" doc:"quota of each of its trees"`
	Usage Consumption `json:"usage" doc:"its consumption"`
	// NetworkMax is nil if only the bound of the daemon holds.
	NetworkMax *NetworkPolicy `json:"network_max,omitempty" doc:"upper bound of what its sandboxes may reach"`
}

// TenantUpdate asks for changes of quotas. Absent quotas stay as they are.
type TenantUpdate struct {
	Quota *Quota `json:"quota,omitempty" doc:"quota of all its sandboxes and snapshots together; an absent member is no limit"`
	Tree  *Quota `json:"tree_quota,omitempty" doc:"quota of each of its trees"`
	// NetworkMax and NoNetworkMax exclude each other.
	NetworkMax   *NetworkRequest `json:"network_max,omitempty" doc:"upper bound of what its sandboxes may reach, those that run included: what it does not allow is denied, whatever the documents of sandboxes say"`
	NoNetworkMax bool            `json:"no_network_max,omitempty" doc:"remove the upper bound"`
}

// GiveRequest asks to let a tenant use an image.
type GiveRequest struct {
	Image string `json:"image" doc:"id or name of an image that the caller has"`
	Name  string `json:"name,omitempty" doc:"name of the image for the tenant; its name for the caller if absent"`
	// Replace takes the name from another image of the tenant.
	Replace bool `json:"replace,omitempty" doc:"take the name from another image of the tenant; without replace, a taken name is a conflict"`
}

// Exceeded is a limit that was exceeded, with its value.
type Exceeded struct {
	Limit string `json:"limit" doc:"member of the quota; operations is the number of operations at once"`
	// Of is the owner of the limit: "tenant NAME" or "tree ID".
	Of    string  `json:"of" doc:"whose: \"tenant NAME\", \"tree ID\" or \"the daemon\""`
	Max   int64   `json:"max" doc:"the limit"`
	Used  float64 `json:"used" doc:"consumption now"`
	Asked int64   `json:"asked,omitempty" doc:"amount that the request would add"`
	// RetrySeconds is set where it may help to try again.
	RetrySeconds int64 `json:"retry_s,omitempty" doc:"seconds after which to try again, if that may help; as in the header Retry-After"`
}
