package api

// DefaultTenant is the tenant that the owner of the daemon works in. Sandboxes,
// snapshots and trees of it have an empty Tenant.
const DefaultTenant = "default"
