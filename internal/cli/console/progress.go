package console

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"ramet.dev/ramet/api"
)

const (
	// barWidth is the width of a bar where the terminal is wide enough.
	barWidth = 64
	// detailWidth is the width of the text beside a bar where the terminal is too narrow for both.
	detailWidth = 24
)

// Progress shows the progress of long work.
type Progress interface {
	Update(api.Progress)
	// End returns when the last state is shown. Later updates are ignored.
	End(ok bool)
}

// NewProgress returns progress bars if standard error is a terminal that can redraw lines, no progress with JSON, and
// otherwise a line for each phase of work that takes longer than two seconds.
func (p *Printer) NewProgress(ctx context.Context) Progress {
	if p.JSON {
		return noProgress{}
	}
	if !IsTerminal(p.Err) || os.Getenv("TERM") == "dumb" {
		return newLineProgress(p.Err)
	}
	drawing, stop := context.WithCancel(context.WithoutCancel(ctx))
	b := &barProgress{
		bars:   mpb.NewWithContext(drawing, mpb.WithOutput(p.Err), mpb.WithWidth(barWidth)),
		stop:   stop,
		phases: map[string]*phaseBar{},
	}
	// The terminal echoes ^C at the cursor, and mpb draws its last state in that column.
	b.keep = context.AfterFunc(ctx, func() {
		_, _ = io.WriteString(p.Err, "\r")
		stop()
	})
	return b
}

type noProgress struct{}

func (noProgress) Update(api.Progress) {}

func (noProgress) End(bool) {}

// silentFor is how long work may take without a line.
const silentFor = 2 * time.Second

// lineProgress writes a line for each phase of long work.
type lineProgress struct {
	out   io.Writer
	timer *time.Timer

	mu    sync.Mutex // guards the fields below
	seen  map[string]bool
	first []string // phases of the first two seconds; nil once they are written
	long  bool     // the work has taken longer than that
	ended bool
}

func newLineProgress(out io.Writer) *lineProgress {
	l := &lineProgress{out: out, seen: map[string]bool{}}
	l.timer = time.AfterFunc(silentFor, l.begin)
	return l
}

// begin writes the phases until now.
func (l *lineProgress) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.long = true
	for _, phase := range l.first {
		l.line(phase)
	}
	l.first = nil
}

func (l *lineProgress) line(phase string) { fmt.Fprintf(l.out, "ramet: %s …\n", Printable(phase)) }

func (l *lineProgress) Update(p api.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.seen[p.Phase] {
		return
	}
	l.seen[p.Phase] = true
	if l.long {
		l.line(p.Phase)
	} else {
		l.first = append(l.first, p.Phase)
	}
}

func (l *lineProgress) End(bool) {
	l.timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// barProgress has one bar for each phase. A phase that is reported again resumes its bar.
type barProgress struct {
	bars *mpb.Progress
	stop context.CancelFunc // ends the drawing
	keep func() bool        // cancels the reaction to an interrupt

	mu     sync.Mutex // guards the fields below: an upload may still be read after its request failed
	phases map[string]*phaseBar
	ended  bool
}

func (b *barProgress) Update(p api.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	bar := b.phases[p.Phase]
	if bar == nil {
		if bar = newPhaseBar(b.bars, p.Phase); bar == nil {
			return
		}
		b.phases[p.Phase] = bar
	}
	bar.update(p)
}

func (b *barProgress) End(ok bool) {
	b.mu.Lock()
	b.ended = true
	for _, bar := range b.phases {
		bar.end(ok)
	}
	b.mu.Unlock()
	b.bars.Wait()
	b.keep()
	b.stop()
}

// phaseBar is the bar of one phase, with a text beside it.
type phaseBar struct {
	bar *mpb.Bar

	mu     sync.Mutex
	detail string
}

// newPhaseBar returns nil if mpb has stopped drawing, because the user interrupted the command or
// the terminal is gone.
func newPhaseBar(bars *mpb.Progress, phase string) *phaseBar {
	p := &phaseBar{}
	// Only a bar that is made without a total can be completed at any total.
	bar, err := bars.Add(0, mpb.BarStyle().Build(),
		mpb.PrependDecorators(decor.Name(Printable(phase), decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Any(percentage, decor.WC{W: len("100%")}), decor.Any(p.text)))
	if err != nil {
		return nil
	}
	p.bar = bar
	return p
}

// percentage is empty while the total is unknown.
func percentage(s decor.Statistics) string {
	if s.Total <= 0 {
		return ""
	}
	return fmt.Sprintf("%d%%", int(100*min(float64(s.Current)/float64(s.Total), 1)))
}

func (p *phaseBar) update(to api.Progress) {
	p.mu.Lock()
	p.detail = Printable(to.Detail)
	p.mu.Unlock()
	p.bar.SetTotal(max(to.Total, 0), false)
	p.bar.SetCurrent(to.Done)
}

// end draws the bar of finished work as complete, and stops it otherwise.
func (p *phaseBar) end(ok bool) {
	if ok {
		p.bar.SetTotal(max(p.bar.Current(), 1), true)
	} else {
		p.bar.Abort(false)
	}
}

// text returns the detail, cut to the room beside the bar.
func (p *phaseBar) text(s decor.Statistics) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	const spaces = 2 // drawn by mpb around a bar
	room := max(s.AvailableWidth-spaces-barWidth, min(detailWidth, s.AvailableWidth/2))
	return runewidth.FillRight(runewidth.Truncate(" "+p.detail, room, "…"), room)
}

// ProgressUnless is NewProgress for a command with an option for quiet.
func (p *Printer) ProgressUnless(ctx context.Context, quiet bool) Progress {
	if quiet {
		return noProgress{}
	}
	return p.NewProgress(ctx)
}
