package demo

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/workload"
)

//go:embed guest/warm.py
var warmProgram string

// image finds the image or builds it.
func (d *demo) image(ctx context.Context) error {
	began := time.Now()
	seen := map[string]bool{}
	img, err := workload.Image(ctx, d.c, d.opts.Image, func(p api.Progress) {
		if len(seen) == 0 {
			d.say("There is no image %q yet: it is built of Debian packages, as an ordinary user would.", d.opts.Image)
		}
		if !seen[p.Phase] {
			seen[p.Phase] = true
			d.say("   %5.1f s  %s", time.Since(began).Seconds(), p.Phase)
		}
	})
	if err != nil {
		return err
	}
	d.report.Image, d.report.Built = img.ID, len(seen) > 0
	size := float64(img.SizeBytes) / (1 << 20)
	if d.report.Built {
		d.say("The image %q is ready after %.1f s: %.0f MiB, a read-only file that all sandboxes share.", d.opts.Image, time.Since(began).Seconds(), size)
	} else {
		d.say("The image %q is there already: %.0f MiB, a read-only file that all sandboxes share.", d.opts.Image, size)
	}
	return nil
}

// create makes the source.
func (d *demo) create(ctx context.Context) error {
	began := time.Now()
	sb, err := d.s.Create(ctx, d.opts.Image, d.s.Name())
	if err != nil {
		return err
	}
	created := time.Since(began)
	kernel, err := d.s.Shell(ctx, sb.ID, "uname -sr")
	if err != nil {
		return err
	}
	d.source, d.report.Sandbox = sb.ID, sb.ID
	d.say("The sandbox %q was created in %.1f ms: its own kernel (%s) in an unprivileged process, no virtual machine, no root.",
		sb.Name, millis(created), strings.TrimSpace(kernel))
	return nil
}

// warm makes a state that is worth forking.
func (d *demo) warm(ctx context.Context) error {
	began := time.Now()
	if err := d.s.Warm(ctx, d.source); err != nil {
		return err
	}
	var warm struct {
		Numbers int
		Period  float64
		First   float64
		PID     int
	}
	if err := d.ask(ctx, d.source, fmt.Sprintf("MIB = %d\n", arrayMiB)+warmProgram, &warm); err != nil {
		return err
	}
	d.pid, d.first = warm.PID, warm.First
	if want := arrayMiB << 20 / 8; warm.Numbers != want {
		return fmt.Errorf("the array has %d numbers, not %d", warm.Numbers, want)
	}
	private, err := d.s.PrivateMiB(ctx, []string{d.source})
	if err != nil {
		return err
	}
	d.say("A Python process in it loaded numpy, made an array of %d numbers (%d MiB), wrote files, and serves programs on", warm.Numbers, arrayMiB)
	d.say("http://127.0.0.1:%d, inside the sandbox. The numbers are a noisy wave of a random period, which is %.3f this time.", workload.Port, warm.Period)
	d.say("That took %.1f s, and the sandbox holds %.0f MiB now. No child will have to do it again.", time.Since(began).Seconds(), private)
	return nil
}
