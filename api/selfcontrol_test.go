package api

import "testing"

func TestValidSelfControl(t *testing.T) {
	for _, ok := range []*SelfControl{nil, {Forks: 1, Depth: 1}, {Forks: 1000, Depth: 32, Snapshots: 100}} {
		if err := ok.Valid(); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
	for _, bad := range []SelfControl{{}, {Forks: 1}, {Depth: 1}, {Forks: 1001, Depth: 1}, {Forks: 1, Depth: 33}, {Forks: 1, Depth: 1, Snapshots: 101}, {Forks: -1, Depth: -1}} {
		if err := bad.Valid(); CodeOf(err) != CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
