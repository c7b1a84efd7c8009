package console

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

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

// Progress shows how far long work is.
type Progress interface {
	Update(api.Progress)
	// End returns when the last state is shown. Later updates are ignored.
	End(ok bool)
}

// NewProgress returns bars on a terminal that can redraw them, and nothing elsewhere or beside
// JSON: a reader of what a command says wants its result.
func (p *Printer) NewProgress(ctx context.Context) Progress {
	if p.JSON || !IsTerminal(p.Err) || os.Getenv("TERM") == "dumb" {
		return noProgress{}
	}
	drawing, stop := context.WithCancel(context.WithoutCancel(ctx))
	b := &barProgress{
		bars:   mpb.NewWithContext(drawing, mpb.WithOutput(p.Err), mpb.WithWidth(barWidth)),
		stop:   stop,
		phases: map[string]*phaseBar{},
	}
	// The terminal shows ^C where the cursor is, and mpb draws its last state in that column.
	b.keep = context.AfterFunc(ctx, func() {
		_, _ = io.WriteString(p.Err, "\r")
		stop()
	})
	return b
}

type noProgress struct{}

func (noProgress) Update(api.Progress) {}

func (noProgress) End(bool) {}

// barProgress has one bar for each phase. A phase that comes back resumes its bar.
type barProgress struct {
	bars *mpb.Progress
	stop context.CancelFunc // ends the drawing
	keep func() bool        // has it go on when the command is interrupted

	mu     sync.Mutex // an upload may still be read when its request has failed
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

// newPhaseBar returns nil if bars are drawn no more, since the user interrupted the command or
// the terminal is gone.
func newPhaseBar(bars *mpb.Progress, phase string) *phaseBar {
	p := &phaseBar{}
	// Only a bar that is made without a total can be completed whatever its total is by then.
	bar, err := bars.Add(0, mpb.BarStyle().Build(),
		mpb.PrependDecorators(decor.Name(Printable(phase), decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Any(percentage, decor.WC{W: len("100%")}), decor.Any(p.text)))
	if err != nil {
		return nil
	}
	p.bar = bar
	return p
}

// percentage is empty as long as nobody knows the total.
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

// end draws a bar of done work as complete: what was done is all there was.
func (p *phaseBar) end(ok bool) {
	if ok {
		p.bar.SetTotal(max(p.bar.Current(), 1), true)
	} else {
		p.bar.Abort(false)
	}
}

// text returns the detail, cut to what the terminal has room for.
func (p *phaseBar) text(s decor.Statistics) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	const spaces = 2 // that mpb draws around a bar
	room := max(s.AvailableWidth-spaces-barWidth, min(detailWidth, s.AvailableWidth/2))
	return runewidth.FillRight(runewidth.Truncate(" "+p.detail, room, "…"), room)
}

// ProgressUnless returns the progress of a command that may be quiet.
func (p *Printer) ProgressUnless(ctx context.Context, quiet bool) Progress {
	if quiet {
		return noProgress{}
	}
	return p.NewProgress(ctx)
}
