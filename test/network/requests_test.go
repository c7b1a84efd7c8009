package network

import (
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestEachRequestNamesItsHost has a connection go on with the name of another server at the same address,
// without a treatment of the name that was judged.
func TestEachRequestNamesItsHost(t *testing.T) {
	n := newNode(t)
	w := newWorld(t)
	create(n, "plain", allow(t, "files.example.org"))
	got := n.Guest("plain", "outside", "ask", "files.example.org:80", "GET files.example.org", "POST files.example.org", "GET other.example.org", "GET files.example.org")
	if got != "GET files.example.org 200\nPOST files.example.org 200\nGET other.example.org 421\nGET files.example.org 200\n" {
		t.Errorf("the guest says %q", got)
	}
	if got := w.seen(); strings.Count(got, "GET") != 2 || strings.Count(got, "POST") != 1 {
		t.Errorf("the server was asked %s", got)
	}
	var lines []api.NetworkLogEntry
	err := n.Machine.NetworkLog(harness.AsOwner, "plain", false, func() {}, func(e api.NetworkLogEntry) error { lines = append(lines, e); return nil })
	if err != nil || !slices.ContainsFunc(lines, func(e api.NetworkLogEntry) bool {
		return e.Protocol == "http" && e.Verdict == api.NetworkDenied && e.Status == 421 && strings.Contains(e.Rule, "other.example.org")
	}) {
		t.Errorf("the log has %+v, %v", lines, err)
	}
}
