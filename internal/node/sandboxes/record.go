package sandboxes

import (
	"maps"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/reach"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

// Record is what is stored of a sandbox.
type Record struct {
	Sandbox api.Sandbox `json:"sandbox"`
	// Ancestors are the ids of the sandboxes and snapshots it descends from,
	// the first one created first.
	Ancestors []string `json:"ancestors,omitempty"`
	// Freeze is what it was made from; empty if it was created.
	Freeze string `json:"freeze,omitempty"`
	// Control is nil if it may not control itself.
	Control *selfcontrol.Grant `json:"control,omitempty"`
	// SecretEnv is variables of commands that nothing shows. Snapshots do not have them.
	SecretEnv map[string]string `json:"secret_env,omitempty"`
	// Reach belongs to the document of its network.
	Reach reach.Kept `json:"network,omitzero"`
	// Hibernation is the snapshot that it is on disk as, while it is hibernated.
	Hibernation string `json:"hibernation,omitempty"`
	// DiskMiB is what its files took when it was hibernated.
	DiskMiB float64 `json:"disk_mib,omitempty"`
	// Resting says that it is being hibernated: if its sentry is paused, it is for
	// that.
	Resting bool `json:"resting,omitempty"`
	// Dozing says that it was paused because it was idle, not by somebody.
	Dozing bool `json:"dozing,omitempty"`
	// Base is the snapshot on disk that it came from, or that was taken of it last:
	// the next one is written as what differs from that.
	Base string `json:"base,omitempty"`
	spawn.Process
}

// NewRecord returns what all new sandboxes have, however they are made.
func NewRecord(tenant, id, name string, forkIndex int) Record {
	host := name
	if host == "" {
		host = strings.ReplaceAll(id, "_", "-")
	}
	return Record{Sandbox: api.Sandbox{
		ID: id, Tenant: access.Recorded(tenant), Name: name, CreatedAt: time.Now().UTC(),
		Identity: api.Identity{SandboxID: id, ForkIndex: forkIndex, Hostname: host, MachineID: spawn.NewMachineID()},
	}}
}

// SetSecretEnv replaces the secret variables.
func (r *Record) SetSecretEnv(env map[string]string) {
	r.SecretEnv, r.Sandbox.SecretEnv = env, slices.Sorted(maps.Keys(env))
}

// ForSentry returns the sandbox as its sentry is told of it: with all variables.
func (r *Record) ForSentry() *api.Sandbox {
	s := r.Sandbox
	s.Env = Merged(s.Env, r.SecretEnv)
	return &s
}

// Network returns what the sandbox may reach.
func (r *Record) Network() reach.Network {
	return reach.Network{Policy: r.Sandbox.Network, Kept: r.Reach}
}

// SetNetwork replaces it.
func (r *Record) SetNetwork(n reach.Network) {
	r.Sandbox.Network, r.Sandbox.Hold, r.Reach = n.Policy, n.Hold, n.Kept
}

// Inherit makes r that of a sandbox which goes on with the state of a child. Variables that have
// placeholders have those that the child's programs know.
func (r *Record) Inherit(child *Record) {
	had := r.Reach.Placeholders
	r.Reach.Inherit(&child.Reach, child.Sandbox.ID)
	r.Sandbox.Volumes = child.Sandbox.Volumes
	env := Merged(r.Sandbox.Env, nil)
	for name, placeholder := range r.Reach.Placeholders {
		if was, has := had[name]; has && env[name] == was {
			env[name] = placeholder
		}
	}
	r.Sandbox.Env = env
}

// Undo notes that what the sandbox did since a moment is replaced, in s if it runs: of its held requests
// nothing is to become.
func (r *Record) Undo(since time.Time, s *launch.Sentry) {
	u := reach.Undone{Sandbox: r.Sandbox.ID, Since: since, Until: time.Now()}
	if s != nil {
		u.Run = s.Key()
	}
	r.Reach.Undo(u)
}

// Tenant returns whose the sandbox is. Records of versions without tenants are the
// default one's.
func (r *Record) Tenant() string { return access.OfRecord(r.Sandbox.Tenant) }

// Lineage returns the ids of what the sandbox descends from, itself the last.
func (r *Record) Lineage() []string {
	return append(append(make([]string, 0, len(r.Ancestors)+1), r.Ancestors...), r.Sandbox.ID)
}

// Stored returns the change that stores the record.
func (r *Record) Stored() store.Change {
	return store.Change{Table: store.Sandboxes, ID: r.Sandbox.ID, Doc: *r}
}

// Merged returns the metadata or the environment a with the entries of b on top.
func Merged(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}
