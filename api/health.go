package api

// Health is the answer to /healthz and /readyz.
type Health struct {
	Status  string `json:"status" enum:"ok,draining" doc:"ok, or draining while the daemon ends"`
	Version string `json:"version" doc:"version of the daemon"`
	PID     int    `json:"pid" doc:"process id of the daemon"`
}
