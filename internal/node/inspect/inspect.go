package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/lineage"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/service/access"
)

// Config is what an inspector works with.
type Config struct {
	Sandboxes *sandboxes.Registry
	Snapshots *snapshots.Set
	Trees     *lineage.Trees
	Images    Images
	Clock     timer.Clock
}

// Images finds images.
type Images interface {
	// FindImage returns the image that the caller calls ref.
	FindImage(ctx context.Context, ref string) (api.Image, error)
}

// Inspector describes sandboxes. It is safe for concurrent use.
type Inspector struct{ cfg Config }

// New returns an inspector.
func New(cfg Config) *Inspector { return &Inspector{cfg} }

// Get returns a sandbox with its present memory and disk.
func (p *Inspector) Get(ctx context.Context, ref string) (*api.Sandbox, error) {
	b, err := p.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return p.Describe(ctx, b), nil
}

// Describe returns all that is known of a sandbox. What it uses is left out where
// that cannot be read now.
func (p *Inspector) Describe(ctx context.Context, b *sandboxes.Instance) *api.Sandbox {
	v := viewFor(ctx, b)
	if v.Lifecycle.IdleTimeout() > 0 {
		at := b.UsedAt(p.cfg.Clock.Now()).UTC()
		v.ActiveAt = &at
	}
	if st := p.statsAtRest(b); st != nil && st.State == api.StateHibernated {
		v.Disk = &st.Disk
	} else if st, err := p.StatsOf(ctx, b); err == nil {
		v.Memory, v.Disk = &st.Memory, &st.Disk
	}
	return &v
}

// viewFor returns the sandbox as the caller sees it. Of another tenant's sandbox that does not
// have the environment, which may hold secrets.
func viewFor(ctx context.Context, b *sandboxes.Instance) api.Sandbox {
	v := b.View()
	if access.OfRecord(v.Tenant) != access.From(ctx).Tenant {
		v.Env = nil
	}
	return v
}

// List returns the sandboxes that match, the oldest first.
func (p *Inspector) List(ctx context.Context, f api.ListFilter) ([]api.Sandbox, error) {
	image := f.Image
	if image != "" {
		if img, err := p.cfg.Images.FindImage(ctx, image); err == nil {
			image = img.ID
		}
	}
	seen := sandboxes.OldestFirst(p.cfg.Sandboxes.Visible(ctx))
	var err error
	if f.Parent, err = p.cfg.Trees.AncestorID(ctx, seen, f.Parent); err != nil {
		return nil, err
	}
	if f.Ancestor, err = p.cfg.Trees.AncestorID(ctx, seen, f.Ancestor); err != nil {
		return nil, err
	}
	list := make([]api.Sandbox, 0, len(seen))
	for _, b := range seen {
		v := viewFor(ctx, b)
		switch {
		case f.Parent != "" && v.Parent != f.Parent && v.Snapshot != f.Parent:
		case f.Ancestor != "" && (v.ID == f.Ancestor || !slices.Contains(b.Lineage(), f.Ancestor)):
		case f.State != "" && v.State != f.State:
		case image != "" && v.Image != image:
		case f.Name != "" && v.Name != f.Name:
		case !hasAll(v.Metadata, f.Metadata):
		default:
			list = append(list, v)
		}
	}
	return list, nil
}

func hasAll(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Stats returns what a sandbox uses.
func (p *Inspector) Stats(ctx context.Context, ref string) (*api.Stats, error) {
	b, err := p.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if st := p.statsAtRest(b); st != nil {
		return st, nil
	}
	return p.StatsOf(ctx, b)
}

const (
	// traceTimeout bounds how long a sentry may take to describe itself. One that hangs is why it is asked.
	traceTimeout = 5 * time.Second
	traceLog     = 256 << 10
)

// Trace returns what the kernel of a sandbox does.
func (p *Inspector) Trace(ctx context.Context, ref string) (*api.Trace, error) {
	b, err := p.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	sentry, err := b.Running(api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, err
	}
	var now wire.Trace
	t := &api.Trace{}
	limited, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	if _, err := sentry.Call(limited, &wire.Call{Op: wire.OpTrace}, &now); err != nil {
		t.Missing = err.Error()
	}
	t.Now = strings.ToValidUTF8(now.Text, "?")
	log, err := launch.EndOfLog(sentry, traceLog)
	if err != nil {
		return nil, fmt.Errorf("read the log of the sandbox: %w", p.cfg.Sandboxes.Explain(b, sentry, err))
	}
	t.Log = strings.ToValidUTF8(string(log), "?")
	return t, nil
}

// statsAtRest returns what a sandbox uses to which no process on the host belongs,
// or nil of all others.
func (p *Inspector) statsAtRest(b *sandboxes.Instance) *api.Stats {
	rec := b.Record()
	st := &api.Stats{State: rec.Sandbox.State, Disk: api.Disk{UsedMiB: rec.DiskMiB, LimitMiB: rec.Sandbox.Limits.DiskMiB}}
	switch st.State {
	case api.StateHibernated:
		if s := p.cfg.Snapshots.Get(rec.Hibernation); s != nil {
			st.Disk.PrivateMiB = float64(s.View().SizeBytes) / (1 << 20)
		}
		return st
	case api.StateCreating:
		return st
	}
	return nil
}

// StatsOf returns what a running sandbox uses.
func (p *Inspector) StatsOf(ctx context.Context, b *sandboxes.Instance) (*api.Stats, error) {
	sentry, err := b.Running(api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, err
	}
	var info wire.Info
	if _, err := sentry.Call(ctx, &wire.Call{Op: wire.OpInfo}, &info); err != nil {
		return nil, fmt.Errorf("read statistics: %w", p.cfg.Sandboxes.Explain(b, sentry, err))
	}
	cpu, err := sentry.CPU()
	if err != nil {
		return nil, fmt.Errorf("read processor time: %w", p.cfg.Sandboxes.Explain(b, sentry, err))
	}
	st := &api.Stats{State: b.View().State, CPUSeconds: cpu.Seconds(), Processes: info.Processes}
	private, err := launch.PrivateBytes(sentry)
	if err != nil {
		return nil, fmt.Errorf("read memory use: %w", err)
	}
	const mib = 1 << 20
	st.Memory = api.Memory{
		PrivateMiB: float64(private) / mib,
		SharedMiB:  float64(info.SharedBytes) / mib,
	}
	st.Disk = api.Disk{
		UsedMiB:    float64(info.DiskBytes) / mib,
		LimitMiB:   b.View().Limits.DiskMiB,
		PrivateMiB: float64(launch.Allocated(sentry.Files())) / mib,
	}
	return st, nil
}
