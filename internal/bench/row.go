package bench

import "slices"

// metric is one figure of a case.
type metric int

// The metrics. Those in milliseconds are counted from the call.
const (
	pauseMS metric = iota
	returnMS
	firstExecMS
	allReadyMS
	cpuMS
	privateMiB     // as the daemon says
	hostPrivateMiB // as the machine's memory says
	roundtripMS
	mibPerSecond
	overlayMS
	idlePercent
	workMS  // of a piece of work next to the sample: see speed
	metrics // how many there are
)

// sample is what one run of a case measured.
type sample map[metric]float64

// Row is one case. Each figure is the median of the runs, or null if the case
// does not have it.
type Row struct {
	// Case is one of cases; that of caseInARow has the number of the fork behind
	// it, fork-in-a-row-NN.
	Case      string `json:"case"`
	SourceMiB int    `json:"source_mib"`
	N         int    `json:"n"`
	Files     int    `json:"files"`
	Runs      int    `json:"runs"`
	// PauseMS is how long the source stood still; for runsc-restore, how long
	// the checkpoint took, which is not part of the row's other times.
	PauseMS     *float64 `json:"pause_ms"`
	ReturnMS    *float64 `json:"return_ms"`
	FirstExecMS *float64 `json:"first_exec_ms"`
	AllReadyMS  *float64 `json:"all_ready_ms"`
	// CPUMSPerChild has all processes in it that had to do with it: see cost.
	CPUMSPerChild      *float64 `json:"cpu_ms_per_child"`
	PrivateMiBPerChild *float64 `json:"private_mib_per_child"`
	RoundtripMS        *float64 `json:"roundtrip_ms"`
	// MiBPerSecond is how fast the bytes of the cases streams-OP arrived.
	MiBPerSecond *float64 `json:"mib_per_second,omitempty"`
	// OverlayMS is what RoundtripMS is compared with in the cases files-OP: the same in
	// gVisor's overlay on its tmpfs, which is what it offers for a root file system.
	OverlayMS *float64 `json:"overlay_ms,omitempty"`
	// IdleCPUPercent is of one processor; only the case idle has it.
	IdleCPUPercent *float64 `json:"idle_cpu_percent,omitempty"`
	// WorkMS is what a fixed piece of work took next to the samples, as Machine.WorkBestMS:
	// how fast the processors were just then.
	WorkMS *float64 `json:"work_ms,omitempty"`
}

// The cases.
const (
	caseCreate    = "create"
	caseExec      = "exec"
	caseExecPoll  = "exec-idle-poll"
	caseRunCode   = "run_code"
	caseFork      = "fork"
	caseUntouched = "fork-untouched"
	caseWritten   = "fork-written"
	caseAsk       = "fork-ask"
	caseInARow    = "fork-in-a-row"
	caseIdle      = "idle"
	caseSnapshot  = "snapshot-disk"
	caseRestore   = "restore-disk"
	caseDiff      = "diff"
	caseFiles     = "files"
	caseStreams   = "streams"
	caseAttach    = "attach"
	caseRunsc     = "runsc-restore"
)

// cases are all there are. caseExecPoll runs only if Options.Only names it: it changes the
// power use of the whole machine.
var cases = []string{caseCreate, caseExec, caseExecPoll, caseRunCode, caseFork, caseUntouched, caseWritten, caseAsk, caseInARow, caseIdle, caseSnapshot, caseRestore, caseDiff, caseFiles, caseStreams, caseAttach, caseRunsc}

// kind is what makes a row different from others.
type kind struct {
	name   string
	source int // MiB
	n      int
	files  int
}

// The sources, by their resident memory in MiB. The small one has no array: it is
// what Python and numpy take.
const (
	sourceSmall  = 24
	sourceMedium = 256
	sourceLarge  = 1536
)

// newRow returns the medians of samples.
func newRow(k kind, samples []sample) Row {
	r := Row{Case: k.name, SourceMiB: k.source, N: k.n, Files: k.files, Runs: len(samples)}
	of := func(m metric) *float64 {
		var values []float64
		for _, s := range samples {
			if v, ok := s[m]; ok {
				values = append(values, v)
			}
		}
		return median(values)
	}
	r.PauseMS, r.ReturnMS, r.FirstExecMS, r.AllReadyMS = of(pauseMS), of(returnMS), of(firstExecMS), of(allReadyMS)
	r.CPUMSPerChild, r.RoundtripMS, r.IdleCPUPercent = of(cpuMS), of(roundtripMS), of(idlePercent)
	r.MiBPerSecond, r.OverlayMS, r.WorkMS = of(mibPerSecond), of(overlayMS), of(workMS)
	r.PrivateMiBPerChild = larger(of(privateMiB), of(hostPrivateMiB))
	return r
}

// median returns the middle of values, the mean of the middle two if there is
// none, and nil if there are no values.
func median(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	m := sorted[half]
	if len(sorted)%2 == 0 {
		m = (sorted[half-1] + m) / 2
	}
	return &m
}

// larger returns the larger of two figures, of which either may be missing.
func larger(a, b *float64) *float64 {
	if a == nil || (b != nil && *b > *a) {
		return b
	}
	return a
}
