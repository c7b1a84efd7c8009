package e2b

import (
	"context"
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestSnapshotsOfAQuery lists them by name, by sandbox and in pages.
func TestSnapshotsOfAQuery(t *testing.T) {
	svc := &apitest.Service{}
	began := time.Unix(1000, 0)
	svc.SnapshotsFunc = func(context.Context) ([]api.Snapshot, error) {
		return []api.Snapshot{
			{ID: "snap_1", Name: "a", Sandbox: boxID, CreatedAt: began},
			{ID: "snap_2", Name: plain("a:v1"), Sandbox: boxID, CreatedAt: began},
			{ID: "snap_3", Sandbox: "sbx_other", CreatedAt: began.Add(time.Second)},
			{ID: "snap_4", Name: "warm", Template: "warm", CreatedAt: began.Add(time.Minute)},
		}, nil
	}
	keys{"r": api.ScopeRead}.install(svc)
	s := newServer(t, svc)
	list := func(query string) (ids, next string) {
		t.Helper()
		w := ask(s, "GET", "/snapshots?"+query, "", "X-API-KEY: "+httpwire.SecretPrefix+"r")
		var all []snapshotInfo
		if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
			t.Fatalf("%s: %d %s", query, w.Code, w.Body)
		}
		for _, one := range all {
			ids += one.ID + " "
		}
		return ids, w.Header().Get("X-Next-Token")
	}
	for query, want := range map[string]string{
		"": "snap_3 a:v1 a ", "name=a": "a ", "name=a:default": "a ", "name=a:v1": "a:v1 ", "name=snap_3": "snap_3 ", "name=none": "", "name=warm": "",
		"sandboxID=" + outer(boxID): "a:v1 a ", "sandboxID=" + outer(boxID) + "&name=a": "a ", "sandboxID=none": "",
	} {
		if got, next := list(query); got != want || next != "" {
			t.Errorf("%s: %q and %q, want %q", query, got, next, want)
		}
	}
	var all string
	for query, pages := "limit=1", 0; pages < 4; pages++ {
		ids, next := list(query)
		all += ids
		if next == "" {
			break
		}
		query = "limit=1&nextToken=" + next
	}
	if all != "snap_3 a:v1 a " {
		t.Errorf("in pages: %q", all)
	}
}

// TestRangesOfMetrics: what is measured now is in a range that has the present.
func TestRangesOfMetrics(t *testing.T) {
	now := time.Unix(10_000, 500)
	for query, want := range map[string]bool{
		"": true, "start=9000": true, "start=9000&end=10000": true, "end=9998": true, "start=10000&end=10000": true, "start=9990&end=20000": true,
		"start=1&end=9000": false, "end=9000": false, "start=10001": false,
	} {
		q, _ := url.ParseQuery(query)
		if got, err := inRange(q, now); got != want || err != nil {
			t.Errorf("%s: %v, %v", query, got, err)
		}
	}
	for _, query := range []string{"start=x", "end=-1", "start=2&end=1"} {
		q, _ := url.ParseQuery(query)
		if _, err := inRange(q, now); api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%s: %v", query, err)
		}
	}
}

// TestWithoutLimits a sandbox has the memory and the disk of the machine.
func TestWithoutLimits(t *testing.T) {
	s := newServer(t, &apitest.Service{})
	d := s.machine.describe(&api.Sandbox{ID: boxID})
	if d.MemoryMB < 64 || d.DiskSizeMB < 64 || d.CPUCount < 1 {
		t.Errorf("%d MiB of memory, %d of disk, %d processors", d.MemoryMB, d.DiskSizeMB, d.CPUCount)
	}
	d = s.machine.describe(&api.Sandbox{ID: boxID, Limits: api.Limits{MemoryMiB: 20, DiskMiB: 30, CPUs: 1.5}})
	if d.MemoryMB != 20 || d.DiskSizeMB != 30 || d.CPUCount != 2 {
		t.Errorf("%d MiB of memory, %d of disk, %d processors", d.MemoryMB, d.DiskSizeMB, d.CPUCount)
	}
}
