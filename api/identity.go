package api

// The files that tell a sandbox who it is. Ramet writes them when the sandbox starts and anew in each child.
const (
	HostnameFile  = "/etc/hostname"
	HostsFile     = "/etc/hosts"
	MachineIDFile = "/etc/machine-id"
)

// IdentityFiles returns the paths of the identity files, sorted. They are no part of a diff unless a caller asks for
// them by path, nor of a merge, a commit or an export.
func IdentityFiles() []string { return []string{HostnameFile, HostsFile, MachineIDFile} }
