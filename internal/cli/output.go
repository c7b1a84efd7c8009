package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// isTerminal reports whether a standard stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// writeJSON prints v on one line, or indented for a person.
func (a *app) writeJSON(v any) error {
	enc := json.NewEncoder(a.Out)
	enc.SetEscapeHTML(false)
	if isTerminal(a.Out) {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// show prints v as JSON if that is asked for, else what text writes.
func (a *app) show(v any, text func(io.Writer) error) error {
	if a.json {
		return a.writeJSON(v)
	}
	if err := text(a.Out); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// line returns a text for show.
func line(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := fmt.Fprintln(w, s)
		return err
	}
}

// table returns a text for show: rows in aligned columns below their headings.
func table(headings []string, rows [][]string) func(io.Writer) error {
	return func(w io.Writer) error {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{headings}, rows...) {
			for i, cell := range row {
				if cell == "" {
					cell = "-"
				}
				if i > 0 {
					fmt.Fprint(tw, "\t")
				}
				fmt.Fprint(tw, printable(cell))
			}
			fmt.Fprintln(tw)
		}
		return tw.Flush()
	}
}

// pairs returns a text for show: names and values, without the empty ones.
func pairs(kv ...string) func(io.Writer) error {
	return func(w io.Writer) error {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for i := 0; i < len(kv); i += 2 {
			if kv[i+1] != "" {
				fmt.Fprintf(tw, "%s\t%s\n", kv[i], printable(kv[i+1]))
			}
		}
		return tw.Flush()
	}
}

// printable takes control characters out of what a sandbox may have chosen, so
// that a table stays one and a terminal is not told to do things.
func printable(s string) string { return withoutControls(s, "") }

// printablePath returns a path or, if it has quotes, backslashes or what a terminal cannot
// show, quotes it as in Go, as the command in sandboxes does.
func printablePath(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

// withoutControls replaces control characters that are not in keep.
func withoutControls(s, keep string) string {
	return strings.Map(func(r rune) rune {
		if (r < ' ' || (r >= 0x7f && r < 0xa0)) && !strings.ContainsRune(keep, r) {
			return '?'
		}
		return r
	}, s)
}

// age returns how long ago t was, in one unit.
func age(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return ""
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func mib(v float64) string { return fmt.Sprintf("%.1f MiB", v) }

func millis(v float64) string { return fmt.Sprintf("%.1f ms", v) }

func byteSize(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// sizeChange says how large something was and is: in bytes where the difference is
// too small for the unit.
func sizeChange(old, now int64) string {
	was, is := byteSize(old), byteSize(now)
	if was == is {
		was, is = fmt.Sprintf("%d B", old), fmt.Sprintf("%d B", now)
	}
	return was + " → " + is
}
