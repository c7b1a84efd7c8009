package api

// SelfControl bounds the self-control of a sandbox. All descendants of the sandbox that it was
// granted to share its forks and snapshots.
type SelfControl struct {
	Forks     int `json:"forks" minimum:"1" maximum:"1000" doc:"sandboxes that may be made in all"`
	Depth     int `json:"depth" minimum:"0" maximum:"32" doc:"generations below this sandbox; from 1 in a request"`
	Snapshots int `json:"snapshots,omitempty" minimum:"0" maximum:"100" doc:"snapshots that may be made in all"`
}

// The largest bounds of self-control.
const (
	MaxSelfForks     = 1000
	MaxSelfDepth     = 32
	MaxSelfSnapshots = 100
)

// Valid returns a CodeInvalid error unless c, which may be nil, is within the largest bounds.
func (c *SelfControl) Valid() error {
	switch {
	case c == nil:
		return nil
	case c.Forks < 1 || c.Forks > MaxSelfForks:
		return Invalid("self_control.forks", "%d is not from 1 to %d", c.Forks, MaxSelfForks)
	case c.Depth < 1 || c.Depth > MaxSelfDepth:
		return Invalid("self_control.depth", "%d is not from 1 to %d", c.Depth, MaxSelfDepth)
	case c.Snapshots < 0 || c.Snapshots > MaxSelfSnapshots:
		return Invalid("self_control.snapshots", "%d is not from 0 to %d", c.Snapshots, MaxSelfSnapshots)
	}
	return nil
}
