package console

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

	"ramet.dev/ramet/api"
)

func Count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}

func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

// Streams are the standard streams of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Printer writes the results of a command to its streams, as text or as JSON.
type Printer struct {
	Streams
	JSON bool
}

// StdStream is the argument that stands for standard input or output in place of a file.
const StdStream = "-"

// IsTerminal reports whether a standard stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// WriteJSON prints v as JSON: on one line, or indented on a terminal.
func (p *Printer) WriteJSON(v any) error {
	enc := json.NewEncoder(p.Out)
	enc.SetEscapeHTML(false)
	if IsTerminal(p.Out) {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// Show prints v as JSON if the user asked for JSON. Otherwise it calls text, one of the functions
// that Line, Lines, Table and Pairs return.
func (p *Printer) Show(v any, text func(io.Writer) error) error {
	if p.JSON {
		return p.WriteJSON(v)
	}
	if err := text(p.Out); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// Line returns a text of one line.
func Line(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := fmt.Fprintln(w, s)
		return err
	}
}

// Table returns a text with rows in aligned columns below their headings.
func Table(headings []string, rows [][]string) func(io.Writer) error {
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
				fmt.Fprint(tw, Printable(cell))
			}
			fmt.Fprintln(tw)
		}
		return tw.Flush()
	}
}

// Pairs returns a text with names and values. It omits empty values.
func Pairs(kv ...string) func(io.Writer) error {
	return func(w io.Writer) error {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for i := 0; i < len(kv); i += 2 {
			if kv[i+1] != "" {
				fmt.Fprintf(tw, "%s\t%s\n", kv[i], Printable(kv[i+1]))
			}
		}
		return tw.Flush()
	}
}

// Printable replaces control characters in s, which a sandbox may have chosen, so that s neither
// breaks a table nor controls the terminal.
func Printable(s string) string { return WithoutControls(s, "") }

// PrintablePath returns a path. It quotes a path that has quotes, backslashes or characters that a
// terminal cannot show, as Go does, and as the command in sandboxes does.
func PrintablePath(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

// WithoutControls replaces the control characters of s that are not in keep.
func WithoutControls(s, keep string) string {
	return strings.Map(func(r rune) rune {
		if (r < ' ' || (r >= 0x7f && r < 0xa0)) && !strings.ContainsRune(keep, r) {
			return '?'
		}
		return r
	}, s)
}

// Age returns the time from t to now in one unit.
func Age(t, now time.Time) string {
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

func MiB(v float64) string { return fmt.Sprintf("%.1f MiB", v) }

func Millis(v float64) string { return fmt.Sprintf("%.1f ms", v) }

func ByteSize(n int64) string {
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

// SizeChange returns two sizes, in bytes if they look the same in a larger unit.
func SizeChange(old, now int64) string {
	was, is := ByteSize(old), ByteSize(now)
	if was == is {
		was, is = fmt.Sprintf("%d B", old), fmt.Sprintf("%d B", now)
	}
	return was + " → " + is
}

// StreamOf returns the stream that a piece of output belongs to.
func (p *Printer) StreamOf(c api.Chunk) io.Writer {
	if c.Stderr {
		return p.Err
	}
	return p.Out
}

// WriteChunk writes a piece of output to its stream, or a note if it was lost.
func (p *Printer) WriteChunk(c api.Chunk) error {
	if c.Lost > 0 {
		_, err := fmt.Fprintf(p.Err, "ramet: %d bytes of output from %d on are not kept any more\n", c.Lost, c.Seq)
		return err
	}
	_, err := p.StreamOf(c).Write(c.Data)
	return err
}

// ShowIDs is Show for a result with ids. With quiet, the text is the ids alone, one a line. JSON is
// the whole result in any case.
func (p *Printer) ShowIDs(v any, quiet bool, ids []string, text func(io.Writer) error) error {
	if quiet {
		text = Lines(ids)
	}
	return p.Show(v, text)
}

// Lines returns a text with one line for each string.
func Lines(all []string) func(io.Writer) error {
	return func(w io.Writer) error {
		if len(all) == 0 {
			return nil
		}
		return Line(printableLines(all))(w)
	}
}

func printableLines(all []string) string { return WithoutControls(strings.Join(all, "\n"), "\n") }

// IDsOf applies id to each element of list.
func IDsOf[T any](list []T, id func(*T) string) []string {
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = id(&list[i])
	}
	return ids
}
