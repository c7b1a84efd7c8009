package bench

import "fmt"

// The verdicts on a target.
const (
	reached     = "reached"
	missed      = "missed"
	notMeasured = "not measured"
)

// Target is a metric that must be reached on a machine with two processors.
type Target struct {
	What     string   `json:"what"`
	Unit     string   `json:"unit"`
	Measured *float64 `json:"measured"`
	// Limit is the largest value that is allowed, or the least if AtLeast is set. Aim
	// is the desired value; 0 if it is the limit.
	Limit   float64 `json:"limit"`
	Aim     float64 `json:"aim,omitempty"`
	AtLeast bool    `json:"at_least"`
	Verdict string  `json:"verdict"`
}

// rows are the rows of a report.
type rows []Row

// find returns the row of a case without files, or an empty row if it was not measured.
func (rs rows) find(name string, source, n int) Row { return rs.findWith(name, source, n, 0) }

func (rs rows) findWith(name string, source, n, files int) Row {
	for _, r := range rs {
		if r.Case == name && r.SourceMiB == source && r.N == n && r.Files == files {
			return r
		}
	}
	return Row{}
}

// lastInARow is the number of forks in a row.
const lastInARow = 20

func inARow(i int) string { return fmt.Sprintf("%s-%02d", caseInARow, i) }

// targets judges the rows.
func targets(rs rows) []Target {
	fork, large := func(n int) Row { return rs.find(caseFork, sourceSmall, n) }, func(n int) Row { return rs.find(caseFork, 1536, n) }
	untouched := func(source int) Row { return rs.find(caseUntouched, source, untouchedChildren) }
	first, last := rs.find(inARow(1), sourceSmall, 1), rs.find(inARow(lastInARow), sourceSmall, 1)
	ours, theirs := rs.find(caseFork, runscSource, runscChildren), rs.find(caseRunsc, runscSource, runscChildren)
	list := []Target{
		{What: "pause of the source, 24 MiB", Unit: "ms", Measured: fork(1).PauseMS, Limit: 20, Aim: 8},
		{What: "pause of the source, 1.5 GiB", Unit: "ms", Measured: large(1).PauseMS, Limit: 20, Aim: 8},
		{What: "pause of the source, 1.5 GiB that were just written", Unit: "ms", Measured: rs.find(caseWritten, sourceLarge, 1).PauseMS, Limit: 20, Aim: 8},
		{What: "fork(1): first exec answered, 24 MiB", Unit: "ms", Measured: fork(1).FirstExecMS, Limit: 40, Aim: 20},
		{What: "fork(1): first exec answered, 1.5 GiB", Unit: "ms", Measured: large(1).FirstExecMS, Limit: 40, Aim: 20},
		{What: "fork(5): all five answered", Unit: "ms", Measured: fork(5).AllReadyMS, Limit: 120, Aim: 60},
		{What: "fork(100), the first one of a new daemon: all hundred ready", Unit: "ms", Measured: rs.find(caseCold, sourceSmall, coldChildren).AllReadyMS, Limit: 500, Aim: 300},
		{What: "fork(100), after one as large: all hundred ready", Unit: "ms", Measured: fork(100).AllReadyMS, Limit: 1400, Aim: 600},
		{What: "explore of 100 that run true against fork(100) and an exec in each", Unit: "x", Measured: ratio(rs.find(caseExplore, sourceSmall, exploredChildren).AllReadyMS, fork(100).AllReadyMS), Limit: 1.2},
		{What: "CPU per idle child, fork(20)", Unit: "ms", Measured: untouched(sourceSmall).CPUMSPerChild, Limit: 20, Aim: 10},
		{What: "CPU per child, fork(100)", Unit: "ms", Measured: fork(100).CPUMSPerChild, Limit: 8, Aim: 5},
		{What: "private memory per idle child of 1.5 GiB, fork(20)", Unit: "MiB", Measured: untouched(sourceLarge).PrivateMiBPerChild, Limit: 3},
		{What: "20th fork in a row against the 1st: pause", Unit: "x", Measured: ratio(last.PauseMS, first.PauseMS), Limit: 1.3},
		{What: "20th fork in a row against the 1st: first exec", Unit: "x", Measured: ratio(last.FirstExecMS, first.FirstExecMS), Limit: 1.3},
		{What: "exec of true, round trip", Unit: "ms", Measured: rs.find(caseExec, 0, 1).RoundtripMS, Limit: 3},
		{What: "run_code of 1+1 in Python, round trip", Unit: "ms", Measured: rs.find(caseRunCode, 0, 1).RoundtripMS, Limit: 2},
		{What: "CPU of an idle sandbox, of one core", Unit: "%", Measured: rs.find(caseIdle, sourceSmall, idleChildren).IdleCPUPercent, Limit: 0.2},
		// The strict comparison: our whole fork against their restores alone, as
		// if their checkpoint cost nothing.
		{What: "20 children of 256 MiB: time of runsc restore over ours", Unit: "x", Measured: ratio(theirs.AllReadyMS, ours.AllReadyMS), Limit: 5, AtLeast: true},
		{What: "20 children of 256 MiB: memory of runsc over ours", Unit: "x", Measured: ratio(theirs.PrivateMiBPerChild, ours.PrivateMiBPerChild), Limit: 8, AtLeast: true},
	}
	with := func(name string, n int) Row { return rs.findWith(name, sourceSmall, n, manyFiles) }
	few, many := untouched(sourceSmall), with(caseUntouched, untouchedChildren)
	list = append(list,
		Target{What: "fork(1) after 50 000 files of 1 GiB against none: pause", Unit: "x", Measured: ratio(with(caseFork, 1).PauseMS, fork(1).PauseMS), Limit: 1.3},
		Target{What: "fork(20) after 50 000 files of 1 GiB against none: return", Unit: "x", Measured: ratio(many.ReturnMS, few.ReturnMS), Limit: 1.3},
		Target{What: "private memory that each such child has more", Unit: "MiB", Measured: difference(many.PrivateMiBPerChild, few.PrivateMiBPerChild), Limit: 4},
		Target{What: "diff of two children that changed 10 files each of 50 000", Unit: "ms", Measured: with(caseDiff, 2).RoundtripMS, Limit: 10},
	)
	for _, op := range fileOps {
		r := rs.find(fileOp(op.name), 0, 1)
		list = append(list, Target{What: op.name + " against gVisor's overlay on tmpfs", Unit: "x", Measured: ratio(r.RoundtripMS, r.OverlayMS), Limit: op.most})
	}
	for _, op := range streamOps {
		list = append(list, Target{What: op.what + ", through the daemon", Unit: "MiB/s", Measured: rs.find(streamCase(op.name), 0, 1).MiBPerSecond, Limit: op.least, Aim: op.aim, AtLeast: true})
	}
	list = append(list, Target{What: "attach to an inherited process: its output, after fork(1) returned", Unit: "ms", Measured: rs.find(caseAttach, 0, 1).RoundtripMS, Limit: 10})
	list = append(list, netTargets(rs)...)
	list = append(list, workTargets(rs)...)
	list = append(list, programTargets(rs)...)
	for i := range list {
		list[i].Verdict = list[i].judge()
	}
	return list
}

func (t *Target) judge() string {
	switch {
	case t.Measured == nil:
		return notMeasured
	case t.AtLeast && *t.Measured >= t.Limit, !t.AtLeast && *t.Measured <= t.Limit:
		return reached
	}
	return missed
}

// difference returns a-b, or nil if either is missing.
func difference(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	d := *a - *b
	return &d
}

// ratio returns a/b, or nil if either is missing.
func ratio(a, b *float64) *float64 {
	if a == nil || b == nil || *b == 0 {
		return nil
	}
	r := *a / *b
	return &r
}
