package integration

import (
	"io"
	"maps"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// insideOperations are those on what is inside of a sandbox that ref names.
func (n *node) insideOperations() map[string]func(ref string) error {
	ctx := asOwner
	onFile := func(action sandbox.FileAction) func(string) error {
		return func(ref string) error {
			_, err := n.m.ChangeFile(ctx, ref, sandbox.FileChange{FileRef: at("/srv/of-an-error"), Action: action, To: "/srv/to"})
			return err
		}
	}
	return map[string]func(ref string) error{
		"start": func(ref string) error {
			_, err := n.m.StartProcess(ctx, ref, sandbox.StartRequest{Argv: []string{"guest", "true"}})
			return err
		},
		"process": func(ref string) error { _, err := n.m.Process(ctx, ref, 1); return err },
		"signal":  func(ref string) error { return n.m.SignalProcess(ctx, ref, 4242, sandbox.SignalRequest{Signal: "9"}) },
		"resize": func(ref string) error {
			return n.m.ResizeProcess(ctx, ref, 4242, sandbox.TerminalSize{Cols: 1, Rows: 1})
		},
		"write stdin":    func(ref string) error { return n.m.WriteProcess(ctx, ref, 4242, strings.NewReader("x"), true) },
		"wait":           func(ref string) error { _, err := n.m.WaitProcess(ctx, ref, 4242); return err },
		"remove process": func(ref string) error { return n.m.RemoveProcess(ctx, ref, 4242) },
		"attach": func(ref string) error {
			_, err := n.m.Attach(ctx, ref, 4242, sandbox.AttachRequest{}, httpapi.AttachIO{Output: func(sandbox.Chunk) error { return nil }})
			return err
		},
		"contexts": func(ref string) error { _, err := n.m.Contexts(ctx, ref); return err },
		"create context": func(ref string) error {
			_, err := n.m.CreateContext(ctx, ref, sandbox.ContextRequest{Language: "bash"})
			return err
		},
		"interrupt":       func(ref string) error { _, err := n.m.InterruptContext(ctx, ref, "bash"); return err },
		"restart":         func(ref string) error { _, err := n.m.RestartContext(ctx, ref, "bash"); return err },
		"destroy context": func(ref string) error { return n.m.DestroyContext(ctx, ref, "bash") },
		"run code": func(ref string) error {
			_, err := n.m.RunCode(ctx, ref, sandbox.RunCodeRequest{Language: "bash", Code: "true"}, discardRun())
			return err
		},
		"stat file": func(ref string) error { _, err := n.m.StatFile(ctx, ref, at("/")); return err },
		"read file": func(ref string) error { _, err := n.read(ref, at("/etc/hostname")); return err },
		"write file": func(ref string) error {
			_, err := n.m.WriteFile(ctx, ref, sandbox.WriteRequest{FileRef: at("/tmp/of-an-error")}, strings.NewReader("x"))
			return err
		},
		"mkdir": onFile(sandbox.FileMkdir), "move": onFile(sandbox.FileMove), "remove file": onFile(sandbox.FileRemove),
		"list": func(ref string) error {
			_, err := n.m.ListFiles(ctx, ref, sandbox.ListRequest{FileRef: at("/"), Depth: 1, Limit: 1})
			return err
		},
		"search": func(ref string) error {
			_, err := n.m.SearchFiles(ctx, ref, sandbox.SearchRequest{FileRef: at("/etc"), Glob: "x", Limit: 1})
			return err
		},
		"read archive": func(ref string) error { return n.m.ReadArchive(ctx, ref, at("/etc/hostname"), io.Discard) },
		"write archive": func(ref string) error {
			_, err := n.m.WriteArchive(ctx, ref, at("/tmp"), false, strings.NewReader(""))
			return err
		},
		"watch": func(ref string) error {
			return n.m.WatchFiles(ctx, ref, sandbox.WatchRequest{FileRef: at("/nowhere")}, func(sandbox.FileEvents) error { return nil })
		},
		"ports": func(ref string) error { _, err := n.m.Ports(ctx, ref); return err },
		"dial": func(ref string) error {
			c, err := n.m.DialPort(ctx, ref, 1, 0)
			if err == nil {
				c.Close()
			}
			return err
		},
	}
}

// wholeOperations are those on a whole sandbox that operations has not, and change none
// if they are refused.
func (n *node) wholeOperations() map[string]func(ref string) error {
	ctx := asOwner
	return map[string]func(ref string) error{
		"hibernate": func(ref string) error { _, err := n.m.Hibernate(ctx, ref); return err },
		"wake":      func(ref string) error { _, err := n.m.Wake(ctx, ref); return err },
		"update":    func(ref string) error { _, err := n.m.Update(ctx, ref, sandbox.UpdateRequest{}); return err },
		"merge into": func(ref string) error {
			_, err := n.m.Merge(ctx, ref, sandbox.MergeRequest{From: []string{"box"}})
			return err
		},
		"merge from": func(ref string) error {
			_, err := n.m.Merge(ctx, "box", sandbox.MergeRequest{From: []string{ref}})
			return err
		},
		"export":   func(ref string) error { return n.m.Export(ctx, ref, sandbox.ExportRequest{Format: "tar"}, io.Discard) },
		"timeline": func(ref string) error { _, err := n.m.Timeline(ctx, ref); return err },
		"rewind":   func(ref string) error { _, err := n.m.Rewind(ctx, ref, 1); return err },
		"events": func(ref string) error {
			if ref == "" {
				return sandbox.Invalid("id", "stands for all")
			}
			return n.m.Events(ctx, sandbox.EventRequest{Sandbox: ref}, func() {}, func(sandbox.Event) error { return nil })
		},
		"verify": func(ref string) error { _, err := n.m.VerifySnapshot(ctx, ref); return err },
	}
}

// TestOperationsOnNothing gives operations references to what is not there, cannot be, or
// has failed.
func TestOperationsOnNothing(t *testing.T) {
	n := newNode(t)
	n.create("box")
	gone := n.create("gone").ID
	n.destroy(gone)
	all := n.insideOperations()
	maps.Copy(all, n.wholeOperations())
	refs := []string{"", "..", "../box", "/etc", "box\x00", "sbx_../../x", "none", strings.Repeat("a", 1<<16), gone, "gone", sandbox.NewID(sandbox.KindSandbox), sandbox.NewID(sandbox.KindSnapshot)}
	for name, op := range all {
		for _, ref := range refs {
			if c := sandbox.CodeOf(op(ref)); c != sandbox.CodeInvalid && c != sandbox.CodeNotFound {
				t.Errorf("%s %q: code %q", name, ref[:min(len(ref), 80)], c)
			}
		}
	}
	n.create("failed")
	n.killSentry(n.sentryOf("failed"))
	n.mustFail("failed")
	for name, op := range n.insideOperations() {
		if c := sandbox.CodeOf(op("failed")); c != sandbox.CodeSandboxDied {
			t.Errorf("%s of one that has failed: code %q", name, c)
		}
	}
	for _, name := range []string{"hibernate", "merge into", "merge from", "export"} {
		if c := sandbox.CodeOf(n.wholeOperations()[name]("failed")); c != sandbox.CodeSandboxDied {
			t.Errorf("%s of one that has failed: code %q", name, c)
		}
	}
	// Paused ones can be looked into, and nothing can be started in them.
	n.create("paused")
	if _, err := n.m.Pause(asOwner, "paused"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]sandbox.Code{
		"start": sandbox.CodeWrongState, "create context": sandbox.CodeWrongState, "run code": sandbox.CodeWrongState, "interrupt": sandbox.CodeWrongState, "restart": sandbox.CodeWrongState,
		"contexts": "", "stat file": "", "read file": "", "write file": "", "list": "", "ports": "", "attach": sandbox.CodeNotFound, "dial": sandbox.CodeWrongState,
	} {
		err := n.insideOperations()[name]("paused")
		if c := sandbox.CodeOf(err); c != want {
			t.Errorf("%s of a paused one: code %q: %v", name, c, err)
		}
	}
	if _, err := n.m.Merge(asOwner, "paused", sandbox.MergeRequest{From: []string{"paused"}}); sandbox.CodeOf(err) == sandbox.CodeInternal {
		t.Errorf("merge with itself: %v", err)
	}
}
