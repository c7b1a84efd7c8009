package console

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// Colours reports whether standard output is a terminal whose user wants colours.
func (p *Printer) Colours() bool {
	return IsTerminal(p.Out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// The parameters of SGR, the escape sequence for colours.
const (
	Bold   = "1"
	Faint  = "2"
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Blue   = "34"
	Cyan   = "36"
)

func Coloured(colour, text string, on bool) string {
	if !on {
		return Printable(text)
	}
	return "\x1b[" + colour + "m" + Printable(text) + "\x1b[0m"
}

// Cells are the columns of one line of a drawing.
type Cells struct {
	Text    []string
	Colours []string // one each; empty for none
}

// Drawing returns the lines of a drawing, cut to cols columns and rows lines.
func Drawing(all []Cells, cols, rows int, on bool) []string {
	widths := make([]int, len(all[0].Text))
	for _, c := range all {
		for i, text := range c.Text {
			widths[i] = max(widths[i], runewidth.StringWidth(text))
		}
	}
	const (
		others = 24 // columns that the first cell leaves to the others
		fewest = 8  // the smallest width that a cell is cut to
	)
	widths[0] = min(widths[0], max(cols-others, others))
	var out []string
	for i, c := range all {
		if i == rows-1 && len(all) > rows {
			out = append(out, runewidth.Truncate(fmt.Sprintf("… and %d more", len(all)-i), cols, "…"))
			break
		}
		var b strings.Builder
		room := cols
		for j, text := range c.Text {
			last := j == len(c.Text)-1
			if room < min(widths[j], fewest) {
				break // a cut number would mislead
			}
			if text = runewidth.Truncate(text, min(room, widths[j]), "…"); text == "" && last {
				break
			}
			b.WriteString(Coloured(cmp.Or(c.Colours[j], "0"), text, on && c.Colours[j] != ""))
			room -= runewidth.StringWidth(text)
			if pad := min(room, widths[j]-runewidth.StringWidth(text)+2); !last && pad > 0 {
				b.WriteString(strings.Repeat(" ", pad))
				room -= pad
			}
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	return out
}

// Screen is the alternate screen of a terminal, without a cursor. It is entered by the first
// drawing.
type Screen struct {
	Out  *os.File
	open bool
}

// Size returns the number of columns and rows.
func (s *Screen) Size() (cols, rows int) {
	cols, rows, err := term.GetSize(int(s.Out.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		return 80, 24
	}
	return cols, rows
}

func (s *Screen) Draw(lines []string) error {
	const begin, home, clearLine, clearRest = "\x1b[?1049h\x1b[?25l", "\x1b[H", "\x1b[K", "\x1b[J"
	text := home + strings.Join(lines, clearLine+"\r\n") + clearLine + clearRest
	if !s.open {
		text, s.open = begin+text, true
	}
	if _, err := s.Out.WriteString(text); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

// Close leaves the alternate screen.
func (s *Screen) Close() {
	if s.open {
		_, _ = s.Out.WriteString("\x1b[?25h\x1b[?1049l") // the terminal may be gone
	}
}
