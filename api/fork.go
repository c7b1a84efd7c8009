package api

// ForkRequest asks for children of a running sandbox.
type ForkRequest struct {
	Count       int               `json:"count,omitempty" minimum:"1" maximum:"1000" doc:"number of children; if absent, the number of names, or 1"`
	Names       []string          `json:"names,omitempty" doc:"names of the children, one for each"`
	Metadata    map[string]string `json:"metadata,omitempty" doc:"labels of the children, added to those of the parent"`
	Env         map[string]string `json:"env,omitempty" doc:"added to the environment of commands in the children"`
	SecretEnv   bool              `json:"secret_env,omitempty" doc:"commands in the children have the secret variables of the parent, too"`
	Hostname    string            `json:"hostname,omitempty" maxLength:"63" doc:"host name of the children; that of the parent if absent. Older names stay in /etc/hosts"`
	NewHostname bool              `json:"new_hostname,omitempty" doc:"each has a host name of its own: its name, or its id"`
	Lifecycle   *LifecycleRequest `json:"lifecycle,omitempty" doc:"when the children end or rest by themselves; absent members are the parent's, counted from now"`
	Network     *NetworkRequest   `json:"network,omitempty" doc:"what the children may reach: what the parent may if absent"`
	// Hold and Record need the gateway to end TLS: what they cannot be done to is not reached.
	Hold   NetworkHold `json:"hold,omitempty" enum:"writes" doc:"requests of the children that wait until a child is promoted or they are released, and are dropped with the child: writes are all but GET, HEAD and OPTIONS. Connections other than HTTP to names are refused"`
	Record bool        `json:"record,omitempty" doc:"the children see one world: what the first one was answered is the answer to others that ask the same"`
	// TimeoutMS bounds each child; a child that is late is reported as its
	// error and does not harm the others.
	TimeoutMS int64 `json:"timeout_ms,omitempty" minimum:"0" maximum:"600000" doc:"deadline for each child, 30000 if absent"`
	// Require is FreshRandomness or nothing.
	Require []string `json:"require,omitempty" enum:"fresh-randomness" doc:"fresh-randomness: make no child with a random generator that is known to repeat and has no new seed"`
	// Wait is nil or true unless the caller goes on before the children run.
	Wait *bool `json:"wait,omitempty" doc:"false: return as soon as the snapshot is taken; the children have their ids and are creating until they run or have failed, and requests to one wait for that"`
}

// Waits reports whether the caller waits for the children.
func (r *ForkRequest) Waits() bool { return r.Wait == nil || *r.Wait }

// Children returns how many children a request with a count and names asks for. Without a
// count, it is the number of names, or one.
func Children(count int, names []string) int {
	if count == 0 {
		return max(1, len(names))
	}
	return count
}

// ForkResult is the outcome of a fork or restore, with an entry for each child.
type ForkResult struct {
	PauseMS    float64 `json:"pause_ms" doc:"how long the source stood still"`
	SnapshotMS float64 `json:"snapshot_ms" doc:"from the call to the finished snapshot"`
	ReturnMS   float64 `json:"return_ms" doc:"from the call to its return"`
	Children   []Child `json:"children" doc:"one entry for each child, in the order of their indexes"`
}

// Child is a child of a fork: a sandbox or an error.
type Child struct {
	Sandbox  *Sandbox  `json:"sandbox,omitempty" doc:"the child; absent if it failed"`
	ReadyMS  float64   `json:"ready_ms,omitempty" doc:"from the call until the child could run commands"`
	Identity *Identity `json:"identity,omitempty" doc:"the child's identity, which differs from that of its siblings"`
	Error    *Error    `json:"error,omitempty" doc:"why there is no child"`
	Name     string    `json:"name,omitempty" doc:"name that a child with an error would have"`
}
