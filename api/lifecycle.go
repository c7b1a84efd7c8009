package api

import (
	"strconv"
	"time"
)

// IdleAction is the action on a sandbox that was not used for its idle timeout.
type IdleAction string

// The actions. Only IdleDestroy loses data.
const (
	IdleHibernate IdleAction = "hibernate"
	IdlePause     IdleAction = "pause"
	IdleDestroy   IdleAction = "destroy"
)

// Lifecycle says when a sandbox ends or rests by itself. A child has its parent's.
type Lifecycle struct {
	TTLMS         int64      `json:"ttl_ms,omitempty" doc:"how long it lives after it was created, or after this was changed; 0 is without end"`
	IdleTimeoutMS int64      `json:"idle_timeout_ms,omitempty" doc:"how long it may be unused: without a command, cell, access to files, traffic of ports or input of terminals; 0 is without end"`
	IdleAction    IdleAction `json:"idle_action" doc:"action after the idle timeout: hibernate, pause or destroy"`
	AutoWake      bool       `json:"auto_wake" doc:"a request that needs it running wakes it, if it is hibernated or was paused by its idle timeout"`
	ExpiresAt     *time.Time `json:"expires_at,omitempty" doc:"when it is destroyed, by its ttl"`
	// The next two are about snapshots without a name.
	KeepSnapshots    int   `json:"keep_snapshots,omitempty" doc:"how many snapshots without a name its tree keeps, the latest ones; 0 is all"`
	SnapshotMaxAgeMS int64 `json:"snapshot_max_age_ms,omitempty" doc:"how long its snapshots without a name are kept; 0 is without end"`
}

// LifecycleRequest asks for a Lifecycle. Absent fields are the parent's or, in a
// change, stay as they are; a new sandbox lives without end and wakes by itself.
type LifecycleRequest struct {
	TTLMS            *int64     `json:"ttl_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"the sandbox is destroyed so long from now; 0 is never"`
	IdleTimeoutMS    *int64     `json:"idle_timeout_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"how long it may be unused, from 1000; 0 is without end"`
	IdleAction       IdleAction `json:"idle_action,omitempty" doc:"action after the idle timeout; hibernate if absent"`
	AutoWake         *bool      `json:"auto_wake,omitempty" doc:"whether a request that needs it running wakes it; true if absent"`
	KeepSnapshots    *int       `json:"keep_snapshots,omitempty" minimum:"0" maximum:"1000000" doc:"how many snapshots without a name its tree keeps, the latest ones; 0 is all"`
	SnapshotMaxAgeMS *int64     `json:"snapshot_max_age_ms,omitempty" minimum:"0" maximum:"315360000000" doc:"how long its later snapshots without a name are kept, from 1000; 0 is without end"`
}

// Bounds of a Lifecycle, in milliseconds. No clock overflows in ten years.
const (
	maxLifeMS = 10 * 365 * 24 * 3600 * 1000
	minIdleMS = 1000
	maxKept   = 1_000_000
)

// Valid returns a CodeInvalid error unless r can be carried out. It may be nil.
func (r *LifecycleRequest) Valid() error {
	switch {
	case r == nil:
		return nil
	case r.TTLMS != nil && (*r.TTLMS < 0 || *r.TTLMS > maxLifeMS):
		return Invalid("lifecycle.ttl_ms", "%v is not 0 (never) or a time of up to ten years", inTime(*r.TTLMS))
	case r.IdleTimeoutMS != nil && *r.IdleTimeoutMS != 0 && (*r.IdleTimeoutMS < minIdleMS || *r.IdleTimeoutMS > maxLifeMS):
		return Invalid("lifecycle.idle_timeout_ms", "%v is not 0 (never) or a time from %v to ten years", inTime(*r.IdleTimeoutMS), inTime(minIdleMS))
	case r.KeepSnapshots != nil && (*r.KeepSnapshots < 0 || *r.KeepSnapshots > maxKept):
		return Invalid("lifecycle.keep_snapshots", "%d is not a number from 0 (all) to %d", *r.KeepSnapshots, maxKept)
	case r.SnapshotMaxAgeMS != nil && *r.SnapshotMaxAgeMS != 0 && (*r.SnapshotMaxAgeMS < minIdleMS || *r.SnapshotMaxAgeMS > maxLifeMS):
		return Invalid("lifecycle.snapshot_max_age_ms", "%v is not 0 (without end) or a time from %v to ten years", inTime(*r.SnapshotMaxAgeMS), inTime(minIdleMS))
	}
	switch r.IdleAction {
	case "", IdleHibernate, IdlePause, IdleDestroy:
		return nil
	}
	return Invalid("lifecycle.idle_action", "%q is not hibernate, pause or destroy", r.IdleAction)
}

// inTime returns a duration in the form that people write.
func inTime(ms int64) string {
	if d := time.Duration(ms) * time.Millisecond; d.Milliseconds() == ms {
		return d.String()
	}
	return strconv.FormatInt(ms, 10) + "ms" // larger than a time.Duration
}

// Inherited returns the lifecycle of a sandbox that is made now from a sandbox with l, with
// the changes of r. Both may be nil.
func (l *Lifecycle) Inherited(r *LifecycleRequest, now time.Time) *Lifecycle {
	if l == nil && r == nil {
		return nil
	}
	out := l.Changed(r, now)
	out.restart(now)
	return out
}

// Changed returns l with the changes of r, counted from now. Both may be nil.
func (l *Lifecycle) Changed(r *LifecycleRequest, now time.Time) *Lifecycle {
	out := Lifecycle{IdleAction: IdleHibernate, AutoWake: true}
	if l != nil {
		out = *l
	}
	if r == nil {
		return &out
	}
	if r.TTLMS != nil {
		out.TTLMS = *r.TTLMS
		out.restart(now)
	}
	if r.IdleTimeoutMS != nil {
		out.IdleTimeoutMS = *r.IdleTimeoutMS
	}
	if r.IdleAction != "" {
		out.IdleAction = r.IdleAction
	}
	if r.AutoWake != nil {
		out.AutoWake = *r.AutoWake
	}
	if r.KeepSnapshots != nil {
		out.KeepSnapshots = *r.KeepSnapshots
	}
	if r.SnapshotMaxAgeMS != nil {
		out.SnapshotMaxAgeMS = *r.SnapshotMaxAgeMS
	}
	return &out
}

// restart counts the ttl from now.
func (l *Lifecycle) restart(now time.Time) {
	if l.ExpiresAt = nil; l.TTLMS > 0 {
		at := now.Add(time.Duration(l.TTLMS) * time.Millisecond).UTC()
		l.ExpiresAt = &at
	}
}

// IdleTimeout returns how long the sandbox may be unused, or 0 for any time. l may be nil.
func (l *Lifecycle) IdleTimeout() time.Duration {
	if l == nil {
		return 0
	}
	return time.Duration(l.IdleTimeoutMS) * time.Millisecond
}

// Expiry returns when the sandbox is to be destroyed, if that is known. l may be
// nil.
func (l *Lifecycle) Expiry() (at time.Time, ok bool) {
	if l == nil || l.ExpiresAt == nil {
		return time.Time{}, false
	}
	return *l.ExpiresAt, true
}

// SnapshotExpiry returns when a snapshot without a name that is taken now is deleted, or
// nil. l may be nil.
func (l *Lifecycle) SnapshotExpiry(now time.Time) *time.Time {
	if l == nil || l.SnapshotMaxAgeMS == 0 {
		return nil
	}
	at := now.Add(time.Duration(l.SnapshotMaxAgeMS) * time.Millisecond).UTC()
	return &at
}

// WakesByItself reports whether a request wakes the sandbox. l may be nil.
func (l *Lifecycle) WakesByItself() bool { return l == nil || l.AutoWake }
