package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// Seven sandboxes, of which four have the same time, are read two at a time
// while one that was already read is removed.
func TestPagesNeitherSkipNorRepeat(t *testing.T) {
	var all []api.Sandbox
	for i := range 7 {
		sb := someSandbox(fmt.Sprintf("sbx_aaaaaaaaaaaaaaa%c", 'a'+i))
		sb.CreatedAt = created.Add(time.Duration(i/4) * time.Nanosecond)
		all = append(all, *sb)
	}
	svc := &apitest.Service{ListFunc: func(context.Context, api.ListFilter) ([]api.Sandbox, error) {
		shuffled := slices.Clone(all)
		slices.Reverse(shuffled)
		return shuffled, nil
	}}
	c := testClient(t, apitest.Serve(t, svc))
	want := slices.Clone(all)
	var got []string
	token := ""
	for page := 0; ; page++ {
		var l httpwire.List[api.Sandbox]
		a := ask(t, c, "GET", "/v1/sandboxes?limit=2&page_token="+token, "")
		if err := json.Unmarshal([]byte(a.body), &l); err != nil || a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		for _, sb := range l.Items {
			got = append(got, sb.ID)
		}
		if token = l.NextPageToken; token == "" {
			break
		}
		if page == 0 {
			all = all[1:] // already seen
		}
	}
	var ids []string
	for _, sb := range want {
		ids = append(ids, sb.ID)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("pages = %v\nwant    %v", got, ids)
	}
}

func TestSnapshotFilters(t *testing.T) {
	svc := &apitest.Service{SnapshotFuncs: apitest.SnapshotFuncs{SnapshotsFunc: func(context.Context) ([]api.Snapshot, error) {
		return []api.Snapshot{
			{ID: snapA, Name: "a", State: api.SnapshotReady, Image: imgA, Sandbox: sbxA, CreatedAt: created, Metadata: map[string]string{"k": "v"}},
			{ID: "snap_bbbbbbbbbbbbbbbb", Name: "b", State: api.SnapshotFailed, Sandbox: sbxB, CreatedAt: created},
		}, nil
	}}}
	c := testClient(t, apitest.Serve(t, svc))
	for query, want := range map[string]int{
		"": 2, "?state=ready": 1, "?state=creating": 0, "?name=b": 1, "?image=" + imgA: 1, "?sandbox=" + sbxB: 1,
		"?metadata=k%3Dv": 1, "?metadata=k%3Dw": 0, "?metadata=k%3Dv&name=b": 0,
	} {
		var l httpwire.List[api.Snapshot]
		a := ask(t, c, "GET", "/v1/snapshots"+query, "")
		if err := json.Unmarshal([]byte(a.body), &l); err != nil || len(l.Items) != want {
			t.Errorf("%s: %d snapshots, want %d: %s", query, len(l.Items), want, a.body)
		}
	}
}
