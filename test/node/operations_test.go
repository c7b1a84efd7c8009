package node

import (
	"io"
	"maps"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// insideOperations are those on what is inside of a sandbox that ref names.
func insideOperations(n *harness.Node) map[string]func(ref string) error {
	ctx := harness.AsOwner
	onFile := func(action api.FileAction) func(string) error {
		return func(ref string) error {
			_, err := n.Machine.ChangeFile(ctx, ref, api.FileChange{FileRef: harness.At("/srv/of-an-error"), Action: action, To: "/srv/to"})
			return err
		}
	}
	return map[string]func(ref string) error{
		"start": func(ref string) error {
			_, err := n.Machine.StartProcess(ctx, ref, api.StartRequest{Argv: []string{"guest", "true"}})
			return err
		},
		"process": func(ref string) error { _, err := n.Machine.Process(ctx, ref, 1); return err },
		"signal":  func(ref string) error { return n.Machine.SignalProcess(ctx, ref, 4242, api.SignalRequest{Signal: "9"}) },
		"resize": func(ref string) error {
			return n.Machine.ResizeProcess(ctx, ref, 4242, api.TerminalSize{Cols: 1, Rows: 1})
		},
		"write stdin":    func(ref string) error { return n.Machine.WriteProcess(ctx, ref, 4242, strings.NewReader("x"), true) },
		"wait":           func(ref string) error { _, err := n.Machine.WaitProcess(ctx, ref, 4242); return err },
		"remove process": func(ref string) error { return n.Machine.RemoveProcess(ctx, ref, 4242) },
		"attach": func(ref string) error {
			_, err := n.Machine.Attach(ctx, ref, 4242, api.AttachRequest{}, api.AttachIO{Output: func(api.Chunk) error { return nil }})
			return err
		},
		"contexts": func(ref string) error { _, err := n.Machine.Contexts(ctx, ref); return err },
		"create context": func(ref string) error {
			_, err := n.Machine.CreateContext(ctx, ref, api.ContextRequest{Language: "bash"})
			return err
		},
		"interrupt":       func(ref string) error { _, err := n.Machine.InterruptContext(ctx, ref, "bash"); return err },
		"restart":         func(ref string) error { _, err := n.Machine.RestartContext(ctx, ref, "bash"); return err },
		"destroy context": func(ref string) error { return n.Machine.DestroyContext(ctx, ref, "bash") },
		"run code": func(ref string) error {
			_, err := n.Machine.RunCode(ctx, ref, api.RunCodeRequest{Language: "bash", Code: "true"}, harness.DiscardRun())
			return err
		},
		"stat file": func(ref string) error { _, err := n.Machine.StatFile(ctx, ref, harness.At("/")); return err },
		"read file": func(ref string) error { _, err := n.Read(ref, harness.At("/etc/hostname")); return err },
		"write file": func(ref string) error {
			_, err := n.Machine.WriteFile(ctx, ref, api.WriteRequest{FileRef: harness.At("/tmp/of-an-error")}, strings.NewReader("x"))
			return err
		},
		"mkdir": onFile(api.FileMkdir), "move": onFile(api.FileMove), "remove file": onFile(api.FileRemove),
		"list": func(ref string) error {
			_, err := n.Machine.ListFiles(ctx, ref, api.ListRequest{FileRef: harness.At("/"), Depth: 1, Limit: 1})
			return err
		},
		"search": func(ref string) error {
			_, err := n.Machine.SearchFiles(ctx, ref, api.SearchRequest{FileRef: harness.At("/etc"), Glob: "x", Limit: 1})
			return err
		},
		"read archive": func(ref string) error {
			return n.Machine.ReadArchive(ctx, ref, harness.At("/etc/hostname"), io.Discard)
		},
		"write archive": func(ref string) error {
			_, err := n.Machine.WriteArchive(ctx, ref, harness.At("/tmp"), false, strings.NewReader(""))
			return err
		},
		"watch": func(ref string) error {
			return n.Machine.WatchFiles(ctx, ref, api.WatchRequest{FileRef: harness.At("/nowhere")}, func(api.FileEvents) error { return nil })
		},
		"ports": func(ref string) error { _, err := n.Machine.Ports(ctx, ref); return err },
		"dial": func(ref string) error {
			c, err := n.Machine.DialPort(ctx, ref, 1, 0)
			if err == nil {
				c.Close()
			}
			return err
		},
	}
}

// wholeOperations are those on a whole sandbox that operations has not, and change none
// if they are refused.
func wholeOperations(n *harness.Node) map[string]func(ref string) error {
	ctx := harness.AsOwner
	return map[string]func(ref string) error{
		"hibernate": func(ref string) error { _, err := n.Machine.Hibernate(ctx, ref); return err },
		"wake":      func(ref string) error { _, err := n.Machine.Wake(ctx, ref); return err },
		"update":    func(ref string) error { _, err := n.Machine.Update(ctx, ref, api.UpdateRequest{}); return err },
		"merge into": func(ref string) error {
			_, err := n.Machine.Merge(ctx, ref, api.MergeRequest{From: []string{"box"}})
			return err
		},
		"merge from": func(ref string) error {
			_, err := n.Machine.Merge(ctx, "box", api.MergeRequest{From: []string{ref}})
			return err
		},
		"export": func(ref string) error {
			return n.Machine.Export(ctx, ref, api.ExportRequest{Format: "tar"}, io.Discard)
		},
		"timeline": func(ref string) error { _, err := n.Machine.Timeline(ctx, ref); return err },
		"rewind":   func(ref string) error { _, err := n.Machine.Rewind(ctx, ref, 1); return err },
		"events": func(ref string) error {
			if ref == "" {
				return api.Invalid("id", "stands for all")
			}
			return n.Machine.Events(ctx, api.EventRequest{Sandbox: ref}, func() {}, func(api.Event) error { return nil })
		},
		"verify": func(ref string) error { _, err := n.Machine.VerifySnapshot(ctx, ref); return err },
	}
}

// TestOperationsOnNothing gives operations references to what is not there, cannot be, or
// has failed.
func TestOperationsOnNothing(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	gone := n.Create("gone").ID
	n.Destroy(gone)
	all := insideOperations(n)
	maps.Copy(all, wholeOperations(n))
	refs := []string{"", "..", "../box", "/etc", "box\x00", "sbx_../../x", "none", strings.Repeat("a", 1<<16), gone, "gone", api.NewID(api.KindSandbox), api.NewID(api.KindSnapshot)}
	for name, op := range all {
		for _, ref := range refs {
			if c := api.CodeOf(op(ref)); c != api.CodeInvalid && c != api.CodeNotFound {
				t.Errorf("%s %q: code %q", name, ref[:min(len(ref), 80)], c)
			}
		}
	}
	n.Create("failed")
	killSentry(n, sentryOf(n, "failed"))
	mustFail(n, "failed")
	for name, op := range insideOperations(n) {
		if c := api.CodeOf(op("failed")); c != api.CodeSandboxDied {
			t.Errorf("%s of one that has failed: code %q", name, c)
		}
	}
	for _, name := range []string{"hibernate", "merge into", "merge from", "export"} {
		if c := api.CodeOf(wholeOperations(n)[name]("failed")); c != api.CodeSandboxDied {
			t.Errorf("%s of one that has failed: code %q", name, c)
		}
	}
	// Paused ones can be looked into, and nothing can be started in them.
	n.Create("paused")
	if _, err := n.Machine.Pause(harness.AsOwner, "paused"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]api.Code{
		"start": api.CodeWrongState, "create context": api.CodeWrongState, "run code": api.CodeWrongState, "interrupt": api.CodeWrongState, "restart": api.CodeWrongState,
		"contexts": "", "stat file": "", "read file": "", "write file": "", "list": "", "ports": "", "attach": api.CodeNotFound, "dial": api.CodeWrongState,
	} {
		err := insideOperations(n)[name]("paused")
		if c := api.CodeOf(err); c != want {
			t.Errorf("%s of a paused one: code %q: %v", name, c, err)
		}
	}
	if _, err := n.Machine.Merge(harness.AsOwner, "paused", api.MergeRequest{From: []string{"paused"}}); api.CodeOf(err) == api.CodeInternal {
		t.Errorf("merge with itself: %v", err)
	}
}
