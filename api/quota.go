package api

// Quota bounds the consumption of a tenant, or of a tree of sandboxes. Zero is no limit.
type Quota struct {
	Sandboxes  int64 `json:"sandboxes" minimum:"0" maximum:"1000000" required:"false" doc:"sandboxes at a time, including paused and hibernated ones"`
	Depth      int64 `json:"depth" minimum:"0" maximum:"1000" required:"false" doc:"generations of forks and restores below the first sandbox"`
	MemoryMiB  int64 `json:"memory_mib" minimum:"0" maximum:"16777216" required:"false" doc:"memory of running and paused sandboxes; shared memory counts once"`
	DiskMiB    int64 `json:"disk_mib" minimum:"0" maximum:"16777216" required:"false" doc:"files that sandboxes wrote, and snapshots on disk; shared data counts once"`
	CPUSeconds int64 `json:"cpu_seconds" minimum:"0" maximum:"1000000000000" required:"false" doc:"processor time in all, from the first sandbox on"`
}

// Consumption has the resources that a tenant or a tree uses.
type Consumption struct {
	Sandboxes  int64   `json:"sandboxes" doc:"sandboxes, including paused and hibernated ones"`
	Depth      int64   `json:"depth" doc:"depth of the deepest sandbox"`
	MemoryMiB  float64 `json:"memory_mib" doc:"memory of running and paused sandboxes"`
	DiskMiB    float64 `json:"disk_mib" doc:"files that sandboxes wrote, and snapshots on disk"`
	CPUSeconds float64 `json:"cpu_seconds" doc:"processor time in all"`
}

// Tenant is a tenant with its quotas and consumption.
type Tenant struct {
	Name  string      `json:"name" doc:"name of the tenant"`
	Quota Quota       `json:"quota" doc:"quota of all its sandboxes and snapshots together"`
	Tree  Quota       `json:"tree_quota" doc:"quota of each of its trees"`
	Usage Consumption `json:"usage" doc:"its consumption"`
}

// TenantUpdate asks for changes of quotas. Absent quotas stay as they are.
type TenantUpdate struct {
	Quota *Quota `json:"quota,omitempty" doc:"quota of all its sandboxes and snapshots together; an absent member is no limit"`
	Tree  *Quota `json:"tree_quota,omitempty" doc:"quota of each of its trees"`
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
