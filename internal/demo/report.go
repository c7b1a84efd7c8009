package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/workload"
)

// Report is the result of the demonstration, for --json.
type Report struct {
	Image   string `json:"image"`
	Built   bool   `json:"built" doc:"the image was missing"`
	Sandbox string `json:"sandbox"`
	Steps   []Step `json:"steps"`
	// Installed is a package with its version that pip has installed; else NotInstalled says why not.
	Installed    string `json:"installed,omitempty"`
	NotInstalled string `json:"not_installed,omitempty"`
	// Plans has one entry a child of the first fork.
	Plans    []Outcome    `json:"plans"`
	Diff     []api.Change `json:"diff"`
	Promoted Outcome      `json:"promoted" doc:"what the source says after it took over the best child's state"`
	Answers  int          `json:"answers" doc:"children of the second fork whose answer was right"`
	Forks    []ForkRow    `json:"forks"`
	TotalMS  float64      `json:"total_ms"`
}

// Step is one step of the demonstration.
type Step struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}

// Outcome is the result of a plan.
type Outcome struct {
	Sandbox string  `json:"sandbox"`
	Plan    string  `json:"plan"`
	Score   float64 `json:"score"`
	Note    string  `json:"note"`
	PID     int     `json:"pid" doc:"of the process that answered"`
}

// ForkRow is one fork in the table. Times begin at the call.
type ForkRow struct {
	N           int     `json:"n"`
	PauseMS     float64 `json:"pause_ms"`
	ReturnMS    float64 `json:"return_ms"`
	FirstExecMS float64 `json:"first_exec_ms"`
	AllReadyMS  float64 `json:"all_ready_ms"`
	PrivateMiB  float64 `json:"private_mib_per_child"`
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func forkRow(f *workload.Forked, privateMiB float64) ForkRow {
	return ForkRow{
		N: len(f.Children), PauseMS: millis(f.Pause), ReturnMS: millis(f.Return),
		FirstExecMS: millis(f.FirstExec), AllReadyMS: millis(f.AllReady), PrivateMiB: privateMiB,
	}
}

// writeForks writes the table.
func writeForks(w io.Writer, rows []ForkRow) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "CHILDREN\tPAUSE\tCALL RETURNS\tFIRST EXEC\tALL READY\tPRIVATE MEMORY PER CHILD\t")
	for _, r := range rows {
		fmt.Fprintf(tw, "%d\t%.1f ms\t%.1f ms\t%.1f ms\t%.1f ms\t%.1f MiB\t\n",
			r.N, r.PauseMS, r.ReturnMS, r.FirstExecMS, r.AllReadyMS, r.PrivateMiB)
	}
	return tw.Flush()
}
