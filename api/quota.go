package api

// Quota bounds what a tenant, or one tree of sandboxes, has and uses. Zero is no
// limit.
type Quota struct {
	Sandboxes  int64 `json:"sandboxes" minimum:"0" maximum:"1000000" required:"false" doc:"sandboxes at a time, those included that are paused or hibernated"`
	Depth      int64 `json:"depth" minimum:"0" maximum:"1000" required:"false" doc:"generations of forks and restores below the first sandbox"`
	MemoryMiB  int64 `json:"memory_mib" minimum:"0" maximum:"16777216" required:"false" doc:"memory of sandboxes that run or are paused; what several share counts once"`
	DiskMiB    int64 `json:"disk_mib" minimum:"0" maximum:"16777216" required:"false" doc:"files that sandboxes wrote, and snapshots on disk; what several share counts once"`
	CPUSeconds int64 `json:"cpu_seconds" minimum:"0" maximum:"1000000000000" required:"false" doc:"processor time in all, from the first sandbox on"`
}

// Consumption is what a tenant or a tree has and uses.
type Consumption struct {
	Sandboxes  int64   `json:"sandboxes" doc:"sandboxes, those included that are paused or hibernated"`
	Depth      int64   `json:"depth" doc:"of the deepest"`
	MemoryMiB  float64 `json:"memory_mib" doc:"memory of sandboxes that run or are paused"`
	DiskMiB    float64 `json:"disk_mib" doc:"files that sandboxes wrote, and snapshots on disk"`
	CPUSeconds float64 `json:"cpu_seconds" doc:"processor time in all"`
}

// Tenant is what is known of a tenant.
type Tenant struct {
	Name  string      `json:"name" doc:"name of the tenant"`
	Quota Quota       `json:"quota" doc:"of all that it has together"`
	Tree  Quota       `json:"tree_quota" doc:"of each of its trees"`
	Usage Consumption `json:"usage" doc:"what it has and uses"`
}

// TenantUpdate asks for other quotas. What is absent stays as it is.
type TenantUpdate struct {
	Quota *Quota `json:"quota,omitempty" doc:"of all that it has together; what is absent in it is no limit"`
	Tree  *Quota `json:"tree_quota,omitempty" doc:"of each of its trees"`
}

// GiveRequest asks to let a tenant use an image.
type GiveRequest struct {
	Image string `json:"image" doc:"id or name of an image that the caller has"`
	Name  string `json:"name,omitempty" doc:"what it is called there; its name here if absent"`
	// Replace is for a name that another image has there.
	Replace bool `json:"replace,omitempty" doc:"take the name from another image of the tenant; without it that is a conflict"`
}

// Exceeded says which limit was in the way, and how much it is.
type Exceeded struct {
	Limit string `json:"limit" doc:"member of the quota; operations are those that are under way at once"`
	// Of is whose: "tenant NAME" or "tree ID".
	Of    string  `json:"of" doc:"whose: \"tenant NAME\", \"tree ID\" or \"the daemon\""`
	Max   int64   `json:"max" doc:"how much that may be"`
	Used  float64 `json:"used" doc:"how much it is"`
	Asked int64   `json:"asked,omitempty" doc:"how much more the request asks for"`
	// RetrySeconds is set where it helps to ask again.
	RetrySeconds int64 `json:"retry_s,omitempty" doc:"in how many seconds to ask again, if that helps; so does the header Retry-After"`
}
