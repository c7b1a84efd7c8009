package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// write writes the report as text: all metrics, and then the targets with the results.
func (r *Report) write(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%d x %s, %d MiB, Linux %s; ramet %s, %s\n%.0f s, in which other processes used %.0f %% of the processors; load %.2f before, %.2f after\n",
		m.CPUs, m.CPUModel, m.MemoryMiB, m.Kernel, m.Ramet, who(m.Root), m.Seconds, m.OthersPercent, m.LoadBefore, m.LoadAfter)
	fmt.Fprintf(w, "a fixed piece of work between the samples took %.2f ms at best, %.2f in the median; SPEED is how fast the processors were in each case, of the best\n\n", m.WorkBestMS, m.WorkMS)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, strings.Join([]string{
		"CASE", "SOURCE MiB", "FILES", "N", "RUNS", "PAUSE ms", "RETURN ms", "FIRST EXEC ms", "ALL READY ms",
		"CPU ms/CHILD", "PRIVATE MiB/CHILD", "ROUND TRIP ms", "MiB/s", "Gbit/s", "GATEWAY MiB", "OVERLAY ms", "IDLE CPU %", "SPEED %", "",
	}, "\t"))
	for _, row := range r.Rows {
		if !shown(row.Case) {
			continue
		}
		fmt.Fprintln(tw, strings.Join([]string{
			row.Case, strconv.Itoa(row.SourceMiB), strconv.Itoa(row.Files), strconv.Itoa(row.N), strconv.Itoa(row.Runs),
			formatted(row.PauseMS), formatted(row.ReturnMS), formatted(row.FirstExecMS), formatted(row.AllReadyMS),
			formatted(row.CPUMSPerChild), formatted(row.PrivateMiBPerChild), formatted(row.RoundtripMS), formatted(row.MiBPerSecond), formatted(row.GbitPerSecond), formatted(row.GatewayMiB), formatted(row.OverlayMS), formatted(row.IdleCPUPercent), formatted(speedPercent(row.WorkMS, m.WorkBestMS)), "",
		}, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	fmt.Fprintln(w)
	if err := r.writeTargets(w); err != nil {
		return fmt.Errorf("write targets: %w", err)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "\nNote: %s", note)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func (r *Report) writeTargets(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TARGET\tLIMIT\tAIM\tMEASURED\tVERDICT")
	for _, t := range r.Targets {
		sign, aim, measured := "<=", "-", "-"
		if t.AtLeast {
			sign = ">="
		}
		if t.Aim != 0 {
			aim = fmt.Sprintf("%g %s", t.Aim, t.Unit)
		}
		if t.Measured != nil {
			measured = formatted(t.Measured) + " " + t.Unit
		}
		fmt.Fprintf(tw, "%s\t%s %g %s\t%s\t%s\t%s\n", t.What, sign, t.Limit, t.Unit, aim, measured, t.Verdict)
	}
	return tw.Flush()
}

// speedPercent returns the speed of the processors during a piece of work, in percent of the best.
func speedPercent(work *float64, best float64) *float64 {
	if work == nil {
		return nil
	}
	p := 100 * best / *work
	return &p
}

// shown reports whether the table has the row of a case. Of the forks in a row it has only some,
// which are to be compared.
func shown(name string) bool {
	return !strings.HasPrefix(name, "fork-in-a-row-") || name == inARow(1) || name == inARow(lastInARow/2) || name == inARow(lastInARow)
}

// formatted returns a number with three significant digits.
func formatted(v *float64) string {
	switch {
	case v == nil:
		return "-"
	case *v >= 100:
		return strconv.FormatFloat(*v, 'f', 0, 64)
	case *v >= 10:
		return strconv.FormatFloat(*v, 'f', 1, 64)
	}
	return strconv.FormatFloat(*v, 'f', 2, 64)
}

func who(root bool) string {
	if root {
		return "as root"
	}
	return "as an ordinary user"
}
