package service

// Service is everything that a machine offers.
//
// All methods of all areas may be called concurrently. They block until the work is done or
// ctx is cancelled, which happens when the client disconnects. The caller is in ctx, see
// package access: a method shows and changes only what the caller may see. Errors carry an
// *api.Error where the user can act on them. A ref is an id or a name, and is well-formed.
type Service interface {
	Sandboxes
	Processes
	Contexts
	Files
	Ports
	Networks
	PublishedPorts
	Secrets
	Held
	Volumes
	Compare
	Snapshots
	Timeline
	Explorations
	Images
	Events
	Tokens
	Tenants
	Audit
	Idempotency
}
