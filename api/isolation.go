package api

// Layer is the state of an isolation layer of a sandbox.
type Layer string

// The values of an isolation layer. A layer that was required and is missing
// is an error, so there is no value for it.
const (
	LayerOn  Layer = "on"
	LayerOff Layer = "off"
)

// Isolation says which layers confine a sandbox.
type Isolation struct {
	Sentry     Layer `json:"sentry" doc:"guest system calls are served by a user-space kernel"`
	Systrap    Layer `json:"systrap" doc:"guest code runs in processes that can make no host system calls"`
	Seccomp    Layer `json:"seccomp" doc:"the user-space kernel's own system calls are filtered"`
	NoNewPrivs Layer `json:"no_new_privs" doc:"no process can gain privileges of the host"`
	Caps       Layer `json:"capabilities_dropped" doc:"the user-space kernel has no capabilities"`
	UserNS     Layer `json:"user_namespace" doc:"the user-space kernel is not root on the host, and its namespace has no other users of the host"`
	OwnUser    Layer `json:"own_user" doc:"the user-space kernel runs as a user of the host that no other process has, also no other sandbox; only a daemon that runs as root can do that"`
	Namespaces Layer `json:"namespaces" doc:"own mount, pid, ipc and uts namespaces, and an empty network namespace that it shares with the daemon's other sandboxes"`
	EmptyRoot  Layer `json:"empty_root" doc:"an empty, read-only root directory"`
	Landlock   Layer `json:"landlock" doc:"the user-space kernel cannot open files of the host, also where its root directory is not empty; with Linux 6.7 no TCP ports, and with 6.12 no signals to other processes"`
	Rlimits    Layer `json:"rlimits" doc:"the resources of the user-space kernel are bounded"`
	Cgroup     Layer `json:"cgroup" doc:"memory and processor time are bounded by a control group"`
	// MemoryLimit says how the limit of memory is kept: by the control group, or by reading the memory every
	// 100 ms and ending the sandbox beyond the limit.
	MemoryLimit string `json:"memory_limit,omitempty" enum:"enforced,watched" doc:"how the limit of memory is kept: enforced by the control group, or watched, which ends the sandbox up to 100 ms late; absent without a limit"`
	CgroupKind  string `json:"cgroup_kind,omitempty" enum:"v1,v2" doc:"absent without a control group"`
}

// How a limit of memory is kept, see Isolation.MemoryLimit.
const (
	MemoryEnforced = "enforced"
	MemoryWatched  = "watched"
)

// FreshRandomness is a requirement that a fork or a restore can have.
const FreshRandomness = "fresh-randomness"

// RequiresFresh reports whether require names FreshRandomness, or returns an error if it
// names anything else.
func RequiresFresh(require []string) (bool, error) {
	for _, name := range require {
		if name != FreshRandomness {
			return false, Invalid("require", "%q cannot be required of a copy: there is %s", name, FreshRandomness)
		}
	}
	return len(require) > 0, nil
}
