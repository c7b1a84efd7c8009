package api

import "time"

// Limits bound the resources of a sandbox. Zero means the node's default; the
// effective values are reported back.
type Limits struct {
	CPUs      float64 `json:"cpus" doc:"CPU cores, from 0.01 to the number of the machine" required:"false"`
	MemoryMiB int64   `json:"memory_mib" doc:"guest memory in MiB, files in memory included, from 16 to four times the memory of the machine" required:"false"`
	DiskMiB   int64   `json:"disk_mib" doc:"bytes that may be written to the root file system, in MiB, up to four times the size of the host's file system that has them" minimum:"0" required:"false"`
	Pids      int64   `json:"pids" doc:"processes and threads" minimum:"0" required:"false"`
	OpenFiles int64   `json:"open_files" doc:"descriptors that each process may have; no process can raise it" minimum:"0" required:"false"`
}

// Sandbox is a sandbox as users see it.
type Sandbox struct {
	ID        string            `json:"id" doc:"id of the sandbox"`
	Tenant    string            `json:"tenant,omitempty" doc:"tenant that owns it; absent for the default tenant"`
	Name      string            `json:"name" doc:"name, or empty"`
	State     State             `json:"state" doc:"state"`
	Reason    string            `json:"reason,omitempty" doc:"why the sandbox failed"`
	Image     string            `json:"image" doc:"image id"`
	ImageName string            `json:"image_name,omitempty" doc:"name of the image when the sandbox was made"`
	Parent    string            `json:"parent" doc:"sandbox that this one was forked from, or whose snapshot it was restored from; empty if it was created"`
	Snapshot  string            `json:"snapshot,omitempty" doc:"snapshot that this one was restored from"`
	Depth     int               `json:"depth" doc:"forks and restores between this sandbox and a created one"`
	CreatedAt time.Time         `json:"created_at" doc:"when it was made"`
	Limits    Limits            `json:"limits" doc:"effective limits"`
	Env       map[string]string `json:"env,omitempty" doc:"environment of its commands"`
	SecretEnv []string          `json:"secret_env,omitempty" doc:"names of variables of its commands that nothing shows"`
	Cwd       string            `json:"working_dir,omitempty" doc:"default directory of commands; the image's WORKDIR"`
	User      string            `json:"user,omitempty" doc:"default user of commands; the image's USER"`
	Metadata  map[string]string `json:"metadata,omitempty" doc:"labels for programs: keys and values of text"`
	Claimed   []string          `json:"claimed,omitempty" doc:"keys of metadata that the sandbox set itself by self-control: rules about access ignore them"`
	Lifecycle *Lifecycle        `json:"lifecycle,omitempty" doc:"when it ends or rests by itself; absent if it was never set"`
	ActiveAt  *time.Time        `json:"active_at,omitempty" doc:"when it was last used, if it has an idle timeout"`
	// AutoCheckpoint is nil without automatic checkpoints.
	AutoCheckpoint *AutoCheckpoint `json:"auto_checkpoint,omitempty" doc:"its state is kept after every command and cell"`
	// Network is nil if the sandbox has no network.
	Network *NetworkPolicy `json:"network,omitempty" doc:"what it may reach; absent if it has no network"`
	// Hold is empty unless a fork or restore asked for it.
	Hold NetworkHold `json:"hold,omitempty" enum:"writes" doc:"held: requests that wait, whatever its network says; it ends with release_hold of a network request"`
	// TrustHostCA is nil unless the request that made it, or an ancestor, said it.
	TrustHostCA *bool `json:"trust_host_ca,omitempty" doc:"false: with a network it trusts no authority but those of its image"`
	TrustedCAs  int   `json:"trusted_cas,omitempty" doc:"certificate authorities of the host that it trusts, and its image does not"`
	// SelfControl is nil if processes of the sandbox may not control it.
	SelfControl *SelfControl  `json:"self_control,omitempty" doc:"self-control of its processes; absent if they have none"`
	Volumes     []VolumeMount `json:"volumes,omitempty" doc:"volumes that it shares with other sandboxes"`
	Identity    Identity      `json:"identity" doc:"its identity, which differs from that of its relatives"`
	Isolation   Isolation     `json:"isolation" doc:"layers that confine it"`
	// Memory is left out of lists: computing it reads the memory maps of each process.
	Memory *Memory `json:"memory,omitempty" doc:"memory that it occupies; absent in lists"`
	// Disk is left out of lists, too.
	Disk *Disk `json:"disk,omitempty" doc:"disk that its files occupy; absent in lists"`
}

// CreateRequest asks for a new sandbox.
type CreateRequest struct {
	Image          string            `json:"image" doc:"image id or name, or snapshot id or name; an image takes precedence"`
	Pull           PullPolicy        `json:"pull,omitempty" enum:"missing,always,never" doc:"whether the image is got first: missing pulls it from its registry if it is not there, and builds the image python; if absent, missing for python and for references with a registry, path, tag or digest, never for other names"`
	Name           string            `json:"name,omitempty" doc:"name to give the sandbox, unique among those of the tenant" minLength:"1"`
	Hostname       string            `json:"hostname,omitempty" maxLength:"63" doc:"host name; if absent, that of the snapshot, or for an image the name or id of the sandbox"`
	Limits         Limits            `json:"limits,omitempty" doc:"limits; absent members are the defaults of the daemon"`
	Env            map[string]string `json:"env,omitempty" doc:"environment of its commands"`
	SecretEnv      map[string]string `json:"secret_env,omitempty" doc:"variables of its commands that nothing shows, that no snapshot has, and that children have only if a fork asks for it"`
	Metadata       map[string]string `json:"metadata,omitempty" doc:"labels for programs: keys and values of text"`
	Lifecycle      *LifecycleRequest `json:"lifecycle,omitempty" doc:"when it ends or rests by itself"`
	AutoCheckpoint *AutoCheckpoint   `json:"auto_checkpoint,omitempty" doc:"keep its state after every command and cell in the foreground"`
	SelfControl    *SelfControl      `json:"self_control,omitempty" doc:"let processes in the sandbox fork, snapshot, roll back and tag it, by the command ramet and the socket /run/ramet.sock"`
	Network        *NetworkRequest   `json:"network,omitempty" doc:"what it may reach: nothing if absent"`
	// Secrets are stored once nothing else of the request can be refused.
	Secrets     map[string]SecretRequest `json:"secrets,omitempty" doc:"secrets to set with the sandbox, by name; a refused request stores none; a stored secret keeps its header and names of servers, and gets the new names too"`
	TrustHostCA *bool                    `json:"trust_host_ca,omitempty" doc:"whether it trusts the certificate authorities of the host that its image does not trust, once it has a network; true if absent"`
	Volumes     []VolumeMount            `json:"volumes,omitempty" maxItems:"16" doc:"volumes that it has, besides those of the snapshot that it is made from"`
	// Require lists isolation layers without which the sandbox must not start
	// (the JSON names of Isolation's fields).
	Require []string `json:"require,omitempty" enum:"sentry,systrap,seccomp,no_new_privs,capabilities_dropped,user_namespace,own_user,namespaces,empty_root,landlock,rlimits,cgroup" doc:"isolation layers that must be on"`
}

// ListFilter selects sandboxes. Empty fields match all.
type ListFilter struct {
	State    State
	Image    string
	Name     string
	Metadata map[string]string
	// Parent, an id or name, selects sandboxes that were forked or restored from it, and
	// Ancestor those that descend from it over any number of generations. Both may be a
	// sandbox or the id of a snapshot, also an id of a sandbox or snapshot that is gone.
	Parent, Ancestor string
}
