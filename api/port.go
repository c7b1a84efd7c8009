package api

import "time"

// Port is a port that a process in a sandbox listens on.
type Port struct {
	Port     int    `json:"port" doc:"number of the port"`
	Protocol string `json:"protocol" enum:"tcp,udp" doc:"tcp or udp"`
	Address  string `json:"address" doc:"address in the sandbox; 0.0.0.0 and :: are all addresses"`
	PID      int    `json:"pid,omitempty" doc:"the first process that has it open"`
	Command  string `json:"command,omitempty" doc:"command of that process"`
}

// PortSessionRequest asks for a URL by which a browser reaches a port of a sandbox.
type PortSessionRequest struct {
	Port int    `json:"port" minimum:"1" maximum:"65535" doc:"TCP port in the sandbox"`
	Path string `json:"path,omitempty" maxLength:"4096" doc:"path of the page to open, with its query, for example /lab; / if absent"`
}

// PortSession is a URL by which a browser reaches a port of a sandbox.
type PortSession struct {
	URL       string    `json:"url" doc:"URL that can be opened once; the browser that opens it is admitted"`
	ExpiresAt time.Time `json:"expires_at" doc:"when it cannot be opened any more"`
}
