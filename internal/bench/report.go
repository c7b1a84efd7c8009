package bench

import "ramet.dev/ramet/internal/bench/machine"

// Report is the result of a run, for --json.
type Report struct {
	Machine machine.Machine `json:"machine"`
	Rows    []Row           `json:"rows"`
	Targets []Target        `json:"targets"`
	// Notes say what was not measured, and why.
	Notes []string `json:"notes"`
}
