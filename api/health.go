package api

import "strings"

// InterfaceVersion is the version of the REST interface, as MAJOR.MINOR. MINOR is raised with a
// release that adds to the interface: clients of an older MINOR are served as before, and those of
// a newer one are told what is not known here. Another MAJOR is another interface.
const InterfaceVersion = "1.0"

// Health is the answer to /healthz and /readyz.
type Health struct {
	Status    string `json:"status" enum:"ok,draining" doc:"ok, or draining while the daemon ends"`
	Version   string `json:"version" doc:"version of the daemon"`
	Interface string `json:"interface" doc:"version of this interface: MAJOR.MINOR. MINOR is raised by additions; clients of another MAJOR do not understand the daemon"`
	PID       int    `json:"pid" doc:"process id of the daemon"`
}

// InterfaceMajor returns the part of a version of the interface that clients must have in common
// with the daemon.
func InterfaceMajor(version string) string {
	major, _, _ := strings.Cut(version, ".")
	return major
}
