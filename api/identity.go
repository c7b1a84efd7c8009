package api

// The files with the identity of a sandbox. Ramet writes them when the sandbox starts and anew in each child.
const (
	HostnameFile  = "/etc/hostname"
	HostsFile     = "/etc/hosts"
	MachineIDFile = "/etc/machine-id"
)

// IdentityFiles returns the paths of the identity files, sorted. They are no part of a diff unless a caller asks for
// them by path, nor of a merge, a commit or an export.
func IdentityFiles() []string { return []string{HostnameFile, HostsFile, MachineIDFile} }

// RunDir has the identity for programs in the sandbox that were started before a fork: the files id and fork-index.
const RunDir = "/run/ramet"

// maxHostname is the longest host name, in bytes. Linux has 64 with the final NUL in some programs.
const maxHostname = 63

// ValidHostname returns a CodeInvalid error unless s is empty or may be the host name of a sandbox.
func ValidHostname(field, s string) error {
	if len(s) > maxHostname {
		return Invalid(field, "the host name has %d bytes: it may have %d", len(s), maxHostname)
	}
	for i := range len(s) {
		letter := s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z' || s[i] >= '0' && s[i] <= '9'
		inner := i > 0 && i < len(s)-1 && (s[i] == '-' || s[i] == '.' && s[i-1] != '.')
		if !letter && !inner {
			return Invalid(field, "%q is not a host name: letters, digits, '-' and '.', beginning and ending with a letter or digit", s)
		}
	}
	return nil
}

// ValidChildHostname returns a CodeInvalid error unless children may have the host name, or one of their own.
func ValidChildHostname(hostname string, own bool) error {
	if hostname != "" && own {
		return Invalid("new_hostname", "it is not compatible with hostname")
	}
	return ValidHostname("hostname", hostname)
}

// Identity has the properties that differ between siblings of a fork.
type Identity struct {
	SandboxID string       `json:"sandbox_id" doc:"id of the sandbox"`
	ForkIndex int          `json:"fork_index" doc:"number among the children of one fork, from 0"`
	Hostname  string       `json:"hostname" doc:"host name"`
	MachineID string       `json:"machine_id" doc:"contents of /etc/machine-id"`
	Hooks     []HookResult `json:"hooks,omitempty" doc:"outcome of each hook in /etc/ramet/fork.d"`
	Reseeded  []Reseed     `json:"reseeded,omitempty" doc:"the random generators of each inherited context, and the generators of processes that got no new seed"`
	Unwritten []string     `json:"unwritten,omitempty" doc:"files with its identity that could not be written, with the reason"`
}

// HookResult is the outcome of a fork hook.
type HookResult struct {
	Name       string  `json:"name" doc:"file name of the hook"`
	ExitCode   int     `json:"exit_code" doc:"exit code of the hook"`
	TimedOut   bool    `json:"timed_out,omitempty" doc:"it was killed after 10 s"`
	Output     string  `json:"output,omitempty" doc:"stdout and stderr, at most 4 KiB"`
	DurationMS float64 `json:"duration_ms" doc:"how long it ran"`
}
