package cli

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"ramet.dev/ramet/internal/sandbox"
)

const barWidth = 64

// progress shows how far long work is.
type progress interface {
	update(sandbox.Progress)
	end(ok bool)
}

// newProgress returns bars on a terminal, lines elsewhere, and nothing beside
// JSON.
func (a *app) newProgress(ctx context.Context) progress {
	switch {
	case a.json:
		return noProgress{}
	case isTerminal(a.Err):
		return &barProgress{bars: mpb.NewWithContext(ctx, mpb.WithOutput(a.Err), mpb.WithWidth(barWidth))}
	}
	return &lineProgress{w: a.Err, seen: map[string]bool{}}
}

type noProgress struct{}

func (noProgress) update(sandbox.Progress) {}
func (noProgress) end(bool)                {}

// lineProgress prints a line for each phase and each detail of it, once: things that
// are done at the same time take turns in what is reported.
type lineProgress struct {
	w    io.Writer
	seen map[string]bool
}

func (l *lineProgress) update(p sandbox.Progress) {
	text := p.Phase
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	if !l.seen[text] {
		l.seen[text] = true
		fmt.Fprintln(l.w, printable(text))
	}
}

func (l *lineProgress) end(bool) {}

// barProgress has one bar for each phase.
type barProgress struct {
	bars   *mpb.Progress
	bar    *mpb.Bar
	phase  string
	detail *atomic.Value // of the bar: each keeps its last one
}

func (b *barProgress) update(p sandbox.Progress) {
	if b.bar == nil || p.Phase != b.phase {
		b.finish(true)
		b.phase, b.detail = p.Phase, &atomic.Value{}
		detail := b.detail
		b.bar = b.bars.AddBar(p.Total,
			mpb.PrependDecorators(decor.Name(printable(p.Phase), decor.WCSyncSpaceR)),
			mpb.AppendDecorators(decor.NewPercentage("%d"), decor.Any(func(decor.Statistics) string {
				text, _ := detail.Load().(string)
				return " " + text
			})))
	}
	b.detail.Store(printable(p.Detail))
	b.bar.SetTotal(p.Total, false)
	b.bar.SetCurrent(p.Done)
}

func (b *barProgress) end(ok bool) {
	b.finish(ok)
	b.bars.Wait()
}

func (b *barProgress) finish(ok bool) {
	switch {
	case b.bar == nil:
	case ok:
		b.bar.SetTotal(max(b.bar.Current(), 1), true) // what was done is all there was
	default:
		b.bar.Abort(false)
	}
}
