package values

import (
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
)

// LifecycleFlags are the options for the time to live, the idle action and the retention of
// snapshots.
type LifecycleFlags struct {
	cmd       *cobra.Command
	ttl, idle time.Duration
	action    string
	autoWake  bool
	keep      int
	maxAge    time.Duration
}

func (o *LifecycleFlags) Flags(cmd *cobra.Command) {
	o.cmd = cmd
	f := cmd.Flags()
	DurationVar(f, &o.ttl, "ttl", "destroy the sandbox after this time, such as 30m; 0 is never")
	DurationVar(f, &o.idle, "idle-timeout", "run the idle action after this time without use: no command, cell, file access, port traffic or input; 0 is never")
	f.StringVar(&o.action, "idle-action", "", "hibernate (to disk; the default), pause (in memory) or destroy")
	CompleteValues(cmd, "idle-action", "hibernate", "pause", "destroy")
	f.IntVar(&o.keep, "keep-snapshots", 0, "number of snapshots without a name that the tree keeps, the latest; 0 is all")
	DurationVar(f, &o.maxAge, "snapshot-max-age", "how long snapshots without a name are kept, such as 48h; 0 is without end")
	f.BoolVar(&o.autoWake, "auto-wake", true, "wake the hibernated or paused sandbox on a request that needs it running")
}

// Request returns the options that the user gave, or nil if there are none.
func (o *LifecycleFlags) Request() (*api.LifecycleRequest, error) {
	r := &api.LifecycleRequest{IdleAction: api.IdleAction(o.action)}
	asked := o.action != ""
	for _, d := range []struct {
		option string
		value  time.Duration
		field  **int64
	}{{"ttl", o.ttl, &r.TTLMS}, {"idle-timeout", o.idle, &r.IdleTimeoutMS}, {"snapshot-max-age", o.maxAge, &r.SnapshotMaxAgeMS}} {
		if !o.cmd.Flags().Changed(d.option) { // 0 is a value: without end
			continue
		}
		ms, err := TimeoutMS(d.option, d.value)
		if err != nil {
			return nil, err
		}
		*d.field, asked = &ms, true
	}
	if o.cmd.Flags().Changed("keep-snapshots") {
		r.KeepSnapshots, asked = &o.keep, true
	}
	if o.cmd.Flags().Changed("auto-wake") {
		r.AutoWake, asked = &o.autoWake, true
	}
	if !asked {
		return nil, nil
	}
	return r, r.Valid()
}
