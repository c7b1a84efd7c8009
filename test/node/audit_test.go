package node

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
	who "ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/test/harness"
)

// sharedLog keeps a log that several write to.
type sharedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// TestAuditSaysWhatWasDone does one of each and reads what was written down. Secrets
// that were given in all places are in neither the audit nor the log.
func TestAuditSaysWhatWasDone(t *testing.T) {
	const secret = "hunter2hunter2"
	n := harness.NewClosedNode(t, filepath.Join(harness.NewDir(t), "data"))
	log := &sharedLog{}
	n.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	n.Open()
	t.Cleanup(n.Finish)
	routes := rest.New(rest.Config{Service: n.Machine, Identify: apitest.Owner, Logger: n.Log})
	server := httptest.NewServer(http.HandlerFunc(routes.ServeHTTP))
	defer server.Close()
	ctx := harness.AsOwner
	issued, err := n.Machine.CreateToken(who.With(ctx, who.Owner(0)), api.TokenRequest{Scope: api.ScopeAdmin})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Open(client.Config{Address: server.URL, Token: issued.Secret})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := c.Sandboxes.Create(ctx, api.CreateRequest{Image: "box", Env: map[string]string{"TOKEN": secret}, Metadata: map[string]string{"k": secret}})
	check(err)
	_, err = c.Processes.Exec(ctx, root.ID, api.ExecRequest{Argv: []string{"/bin/guest", secret}, Env: map[string]string{"T": secret}, Stdin: secret})
	check(err)
	_, err = c.Files.Write(ctx, root.ID, api.WriteRequest{FileRef: api.FileRef{Path: "/" + secret}}, strings.NewReader(secret))
	check(err)
	forked, err := c.Sandboxes.Fork(ctx, root.ID, api.ForkRequest{Count: 2, Env: map[string]string{"T": secret}})
	check(err)
	kids := n.Children(forked)
	_, err = c.Files.Write(ctx, kids[0].ID, api.WriteRequest{FileRef: api.FileRef{Path: "/new"}}, strings.NewReader(secret))
	check(err)
	diff, err := c.Sandboxes.Diff(ctx, root.ID, kids[0].ID, api.DiffRequest{})
	check(err)
	_, err = c.Sandboxes.Merge(ctx, root.ID, api.MergeRequest{From: []string{kids[0].ID}})
	check(err)
	snap, err := c.Snapshots.Create(ctx, root.ID, api.SnapshotRequest{Name: "kept"})
	check(err)
	restored, err := c.Snapshots.Restore(ctx, snap.ID, api.RestoreRequest{})
	check(err)
	_, err = c.Sandboxes.Promote(ctx, kids[1].ID)
	check(err)
	check(c.Sandboxes.Destroy(ctx, kids[0].ID))
	check(c.Sandboxes.Destroy(ctx, n.Children(restored)[0].ID))
	check(c.Snapshots.Delete(ctx, snap.ID, api.SnapshotDeletion{}))
	if _, err := c.Sandboxes.Fork(ctx, kids[0].ID, api.ForkRequest{}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("fork of what is gone: %v", err)
	}

	n.Reopen() // its end is on the disk
	want := map[string]func(api.AuditEntry) bool{
		"create-sandbox": func(e api.AuditEntry) bool { return e.Object == root.ID && e.Details.Image == root.Image },
		"exec-command":   func(e api.AuditEntry) bool { return e.Object == root.ID },
		"fork-sandbox": func(e api.AuditEntry) bool {
			return e.Result != "ok" || e.Details.Parent == root.ID && len(e.Details.Children) == 2 && e.Details.Children[0] == kids[0].ID && e.Details.Freeze != ""
		},
		"diff-sandboxes": func(e api.AuditEntry) bool {
			return e.Details.Changes == len(diff.Changes) && e.Details.Base == root.ID && len(e.Details.Digest) == 64
		},
		"merge-sandboxes": func(e api.AuditEntry) bool {
			return e.Details.From[0] == kids[0].ID && e.Details.Changes == 1 && len(e.Details.Digest) == 64
		},
		"create-snapshot": func(e api.AuditEntry) bool { return e.Details.Snapshot == snap.ID && len(e.Details.Digest) == 64 },
		"restore-snapshot": func(e api.AuditEntry) bool {
			return e.Object == snap.ID && len(e.Details.Children) == 1 && len(e.Details.Digest) == 64
		},
		"promote-sandbox": func(e api.AuditEntry) bool { return e.Object == kids[1].ID && e.Details.Parent == root.ID },
		"destroy-sandbox": func(e api.AuditEntry) bool { return e.Object != "" },
		"delete-snapshot": func(e api.AuditEntry) bool { return e.Object == snap.ID },
	}
	entries, err := n.Machine.AuditEntries(ctx, 0, 1000)
	check(err)
	found := map[string]bool{}
	for _, e := range entries {
		holds, known := want[e.Action]
		if found[e.Action] = true; known && (!holds(e) || e.Token != issued.ID || e.Request == "") {
			t.Errorf("%s: %+v %+v", e.Action, e, e.Details)
		}
	}
	for action := range want {
		if !found[action] {
			t.Errorf("%s was not written down", action)
		}
	}
	if last := entries[len(entries)-1]; last.Action != "fork-sandbox" || last.Result != "not_found" || last.Object != kids[0].ID {
		t.Errorf("the last one is %+v", last)
	}
	if r, err := n.Machine.VerifyAudit(ctx, ""); err != nil || !r.OK || r.Entries != int64(len(entries)) {
		t.Errorf("%+v, %v", r, err)
	}
	texts := map[string][]byte{"log": log.buf.Bytes()}
	files, err := filepath.Glob(filepath.Join(n.Paths.Audit(), "*"))
	check(err)
	for _, f := range files {
		texts[f], err = os.ReadFile(f)
		check(err)
	}
	for name, text := range texts {
		for _, s := range []string{secret, issued.Secret, strings.TrimPrefix(issued.Secret, "ramet_")} {
			if bytes.Contains(text, []byte(s)) {
				t.Errorf("a secret is in %s", name)
			}
		}
	}
	if len(files) < 2 {
		t.Errorf("files %q", files)
	}
}
