package api

import (
	"testing"
	"time"
)

func TestLifecycle(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	minute, no := int64(60_000), false
	var none *Lifecycle
	if got := none.Inherited(nil, now); got != nil || !none.WakesByItself() || none.IdleTimeout() != 0 {
		t.Errorf("nothing asked for became %+v", got)
	}
	l := none.Inherited(&LifecycleRequest{TTLMS: &minute}, now)
	if at, ok := l.Expiry(); !ok || !at.Equal(now.Add(time.Minute)) || l.IdleAction != IdleHibernate || !l.AutoWake {
		t.Errorf("with a ttl it is %+v", l)
	}
	later := now.Add(time.Hour)
	if at, _ := l.Inherited(nil, later).Expiry(); !at.Equal(later.Add(time.Minute)) {
		t.Errorf("a child's ttl ends at %v", at)
	}
	changed := l.Changed(&LifecycleRequest{IdleTimeoutMS: &minute, IdleAction: IdlePause, AutoWake: &no}, later)
	if at, _ := changed.Expiry(); !at.Equal(now.Add(time.Minute)) || changed.IdleTimeout() != time.Minute || changed.IdleAction != IdlePause || changed.WakesByItself() {
		t.Errorf("changed, it is %+v", changed)
	}
	zero := int64(0)
	if _, ok := changed.Changed(&LifecycleRequest{TTLMS: &zero}, later).Expiry(); ok {
		t.Error("it expires without a ttl")
	}
	if l.IdleTimeoutMS != 0 {
		t.Error("a change changed what it was made from")
	}
}

func TestLifecycleBounds(t *testing.T) {
	for _, r := range []LifecycleRequest{
		{TTLMS: ptr(int64(-1))}, {TTLMS: ptr(int64(maxLifeMS + 1))}, {IdleTimeoutMS: ptr(int64(1))}, {IdleTimeoutMS: ptr(int64(-5))}, {IdleAction: "explode"},
	} {
		if err := r.Valid(); CodeOf(err) != CodeInvalid {
			t.Errorf("%+v is %v", r, err)
		}
	}
	if err := (&LifecycleRequest{TTLMS: ptr(int64(0)), IdleTimeoutMS: ptr(int64(0))}).Valid(); err != nil {
		t.Error(err)
	}
}

func ptr[T any](v T) *T { return &v }
