package background

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestFinishWaits has a goroutine that ends by itself, and one that waits to be told.
func TestFinishWaits(t *testing.T) {
	for what, c := range map[string]struct {
		do    func(context.Context)
		grace time.Duration
	}{
		"ends by itself":  {func(context.Context) {}, time.Hour},
		"waits for ever":  {func(ctx context.Context) { <-ctx.Done() }, time.Nanosecond},
		"without a grace": {func(ctx context.Context) { <-ctx.Done() }, 0},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		g := New(ctx)
		cancel()
		if g.Ended() {
			t.Errorf("%s: the group ends with the context that it was made in", what)
		}
		over := false
		g.Go(func(ctx context.Context) {
			c.do(ctx)
			over = true
		})
		g.Finish(c.grace)
		if !over || !g.Ended() || g.Context().Err() == nil {
			t.Errorf("%s: over %t, ended %t", what, over, g.Ended())
		}
	}
}

// TestRecovered logs a panic with where it happened.
func TestRecovered(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	var err error
	func() {
		defer func() { err = Recovered(log, "counting", recover()) }()
		panic("no more numbers")
	}()
	if !errors.Is(err, ErrDefect) || !strings.Contains(text.String(), "counting panicked") || !strings.Contains(text.String(), "TestRecovered") {
		t.Errorf("%v, logged %q", err, text.String())
	}
}
