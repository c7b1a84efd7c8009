package cli

import (
	"context"
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

// newProgress returns bars on a terminal, and nothing elsewhere or beside JSON: whoever
// keeps what a command says wants its result.
func (a *app) newProgress(ctx context.Context) progress {
	if a.json || !isTerminal(a.Err) {
		return noProgress{}
	}
	return &barProgress{bars: mpb.NewWithContext(ctx, mpb.WithOutput(a.Err), mpb.WithWidth(barWidth))}
}

type noProgress struct{}

func (noProgress) update(sandbox.Progress) {}
func (noProgress) end(bool)                {}

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
