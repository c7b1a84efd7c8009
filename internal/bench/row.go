package bench

import "slices"

// metric is the index of a metric in a sample.
type metric int

// The metrics. Times begin at the call.
const (
	pauseMS metric = iota
	returnMS
	firstExecMS
	allReadyMS
	cpuMS
	privateMiB     // by the daemon
	hostPrivateMiB // by the memory of the machine
	roundtripMS
	mibPerSecond
	overlayMS
	gbitPerSecond
	gatewayMiB
	idlePercent
	workMS  // of a fixed piece of work next to the sample: see speed
	metrics // the number of metrics
)

// sample is the metrics of one run of a case.
type sample map[metric]float64

// Row is the result of a case. Each metric is the median of the runs, or null if the case does not
// have it.
type Row struct {
	// Case is one of cases. That of caseInARow ends with the number of the fork:
	// fork-in-a-row-NN.
	Case      string `json:"case"`
	SourceMiB int    `json:"source_mib"`
	N         int    `json:"n"`
	Files     int    `json:"files"`
	Runs      int    `json:"runs"`
	// PauseMS is the pause of the source. For runsc-restore it is the time of
	// the checkpoint, which the other times of the row do not include.
	PauseMS     *float64 `json:"pause_ms"`
	ReturnMS    *float64 `json:"return_ms"`
	FirstExecMS *float64 `json:"first_exec_ms"`
	AllReadyMS  *float64 `json:"all_ready_ms"`
	// CPUMSPerChild is the processor time of all processes involved: see cost.
	CPUMSPerChild      *float64 `json:"cpu_ms_per_child"`
	PrivateMiBPerChild *float64 `json:"private_mib_per_child"`
	RoundtripMS        *float64 `json:"roundtrip_ms"`
	// MiBPerSecond is the throughput of the cases streams-OP.
	MiBPerSecond *float64 `json:"mib_per_second,omitempty"`
	// OverlayMS is the counterpart of RoundtripMS in the cases files-OP: the same operation in
	// gVisor's overlay on its tmpfs, which is gVisor's own root file system.
	OverlayMS *float64 `json:"overlay_ms,omitempty"`
	// GbitPerSecond is the throughput of the cases network-OP.
	GbitPerSecond *float64 `json:"gbit_per_second,omitempty"`
	// GatewayMiB is the memory of the process that opens the connections of sandboxes.
	GatewayMiB *float64 `json:"gateway_mib,omitempty"`
	// IdleCPUPercent is of one processor; only the case idle has it.
	IdleCPUPercent *float64 `json:"idle_cpu_percent,omitempty"`
	// WorkMS is the time of a fixed piece of work next to the samples, as Machine.WorkBestMS:
	// it shows how fast the processors were then.
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
	caseCold      = "fork-cold"
	caseAsk       = "fork-ask"
	caseInARow    = "fork-in-a-row"
	caseIdle      = "idle"
	caseSnapshot  = "snapshot-disk"
	caseRestore   = "restore-disk"
	caseDiff      = "diff"
	caseFiles     = "files"
	caseStreams   = "streams"
	caseAttach    = "attach"
	caseNetwork   = "network"
	caseWork      = "work"
	caseExplore   = "explore"
	caseChromium  = "fork-chromium"
	casePostgres  = "fork-postgres"
	caseJVM       = "fork-jvm"
	caseObjects   = "fork-objects"
	caseThousand  = "fork-thousand"
	caseRunsc     = "runsc-restore"
)

// cases are all cases. caseExecPoll runs only if Options.Only names it, because it changes the
// power use of the whole machine.
var cases = []string{caseCreate, caseExec, caseExecPoll, caseRunCode, caseFork, caseUntouched, caseWritten, caseCold, caseAsk, caseInARow, caseIdle, caseSnapshot, caseRestore, caseDiff, caseFiles, caseStreams, caseAttach, caseNetwork, caseWork, caseExplore, caseChromium, casePostgres, caseJVM, caseObjects, caseThousand, caseRunsc}

// kind identifies a row.
type kind struct {
	name   string
	source int // MiB
	n      int
	files  int
}

// The sources, by their resident memory in MiB. The small one has no array: its memory is
// that of Python and numpy.
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
	r.GbitPerSecond, r.GatewayMiB = of(gbitPerSecond), of(gatewayMiB)
	r.PrivateMiBPerChild = larger(of(privateMiB), of(hostPrivateMiB))
	return r
}

// median returns the median of values, or nil if there are none.
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

// larger returns the larger of two metrics, of which either may be missing.
func larger(a, b *float64) *float64 {
	if a == nil || (b != nil && *b > *a) {
		return b
	}
	return a
}
