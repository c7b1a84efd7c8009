package sentry

import (
	"encoding/json"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestPagesOfProcesses puts pages together again.
func TestPagesOfProcesses(t *testing.T) {
	var all []api.Process
	for pid := 2; pid < 500; pid++ {
		all = append(all, api.Process{PID: pid, Command: strings.Repeat("\x01", pid*17%4096)})
	}
	after, got := 0, 0
	for {
		page := pageOf(all, after)
		doc, err := json.Marshal(page)
		if err != nil {
			t.Fatal(err)
		}
		if len(doc) > 128<<10 {
			t.Fatalf("a page has %d bytes", len(doc))
		}
		for _, p := range page.List {
			if p.PID != all[got].PID {
				t.Fatalf("process %d comes after %d others", p.PID, got)
			}
			got++
		}
		if !page.More {
			break
		}
		after = page.List[len(page.List)-1].PID
	}
	if got != len(all) {
		t.Errorf("%d of %d arrived", got, len(all))
	}
	if page := pageOf(nil, 0); page.List == nil || page.More {
		t.Errorf("no processes are %+v", page)
	}
}
