package fork

import (
	"archive/tar"
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestIdentity checks who sandboxes are after each way to make one, and that no
// two are the same.
func TestIdentity(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	parent := n.Create("parent")
	n.MustBe(parent, 0)
	r, err := n.Machine.Fork(ctx, "parent", api.ForkRequest{Names: []string{"a", "b", "c"}, Env: map[string]string{"X": "of the fork"}})
	if err != nil {
		t.Fatal(err)
	}
	all := append([]*api.Sandbox{parent}, n.Children(r)...)
	for i, c := range n.Children(r) {
		n.MustBe(c, i)
		if got := n.Guest(c.ID, "say", "env:X"); got != "of the fork\n" {
			t.Errorf("X in a child is %q", got)
		}
	}
	grandchildren := n.Fork("c", 2)
	all = append(all, grandchildren...)
	for i, c := range grandchildren {
		n.MustBe(c, i)
		if got := n.Guest(c.ID, "say", "env:X"); got != "of the fork\n" {
			t.Errorf("X in a grandchild is %q", got)
		}
	}
	if got := n.Guest("parent", "say", "env:X"); got != "\n" {
		t.Errorf("X in the parent is %q", got)
	}
	if _, err := n.Machine.Snapshot(ctx, "parent", api.SnapshotRequest{Name: "snap"}); err != nil {
		t.Fatal(err)
	}
	if r, err = n.Machine.Restore(ctx, "snap", api.RestoreRequest{Count: 2}); err != nil {
		t.Fatal(err)
	}
	all = append(all, n.Children(r)...)
	for i, c := range n.Children(r) {
		n.MustBe(c, i)
	}
	machines := map[string]string{}
	for _, s := range all {
		if other, ok := machines[s.Identity.MachineID]; ok {
			t.Errorf("%s has the machine id of %s", s.ID, other)
		}
		machines[s.Identity.MachineID] = s.ID
	}
	back, err := n.Machine.Rollback(ctx, "parent", "snap")
	if err != nil {
		t.Fatal(err)
	}
	if back.ID != parent.ID || back.Identity.MachineID != parent.Identity.MachineID {
		t.Errorf("rollback changed the identity to %+v", back.Identity)
	}
	n.MustBe(back, 0)
	promoted, err := n.Machine.Promote(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	if promoted.ID != parent.ID || promoted.Identity.MachineID != parent.Identity.MachineID {
		t.Errorf("promotion changed the identity to %+v", promoted.Identity)
	}
	n.MustBe(promoted, 0)
	_, err = n.Machine.Get(ctx, "b")
	harness.WantCode(t, err, api.CodeNotFound)
}

// TestHooks checks that all hooks run in each child, in the order of their
// names, before the fork returns, and that the outcome of each is reported.
func TestHooks(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	box := n.Create("box")
	if len(box.Identity.Hooks) != 0 {
		t.Errorf("a created sandbox has hooks %+v", box.Identity.Hooks)
	}
	n.Hook("box", "30-after", "say after the one that failed", "755")
	n.Hook("box", "20-fails", "say about-to-fail err:no-luck exit:7", "755")
	n.Hook("box", "10-identity", "say env:RAMET_SANDBOX_ID env:RAMET_FORK_INDEX file:/etc/machine-id", "755")
	n.Hook("box", "40-acts", "write /var/hooked yes", "755")
	n.Hook("box", "50-disabled", "say no", "644")
	if err := n.ChangeFile("box", api.FileChange{FileRef: harness.At("/etc/ramet/fork.d/55-directory"), Action: api.FileMkdir}); err != nil {
		t.Fatal(err)
	}
	n.Hook("box", "60-crashes", "kill 9", "755")
	n.Hook("box", "70-spews", "spew 100000", "755")
	r, err := n.Machine.Fork(ctx, "box", api.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range r.Children {
		if c.Error != nil {
			t.Fatal(c.Error)
		}
		want := []api.HookResult{
			{Name: "10-identity", Output: fmt.Sprintf("%s\n%d\n%s\n", c.Sandbox.ID, i, c.Identity.MachineID)},
			{Name: "20-fails", ExitCode: 7, Output: "about-to-fail\nno-luck\n"},
			{Name: "30-after", Output: "after\nthe\none\nthat\nfailed\n"},
			{Name: "40-acts"},
			{Name: "60-crashes", ExitCode: 137},
			{Name: "70-spews"},
		}
		if len(c.Identity.Hooks) != len(want) {
			t.Fatalf("%d hooks ran: %+v", len(c.Identity.Hooks), c.Identity.Hooks)
		}
		for j, h := range c.Identity.Hooks {
			if h.Name != want[j].Name || h.ExitCode != want[j].ExitCode {
				t.Errorf("hook %d is %+v, not %+v", j, h, want[j])
			}
			if out := want[j].Output; out != "" && sortLines(h.Output) != sortLines(out) { // two streams
				t.Errorf("hook %s wrote %q, not %q", h.Name, h.Output, out)
			}
		}
		if n := len(c.Identity.Hooks[5].Output); n != 4096 {
			t.Errorf("%d bytes of a long output are kept", n)
		}
		if got := n.Guest(c.Sandbox.ID, "cat", "/var/hooked"); got != "yes" {
			t.Errorf("hook left %q", got)
		}
	}
	if out, err := n.Exec("box", "cat", "/var/hooked"); err != nil || out.OK {
		t.Errorf("a hook ran in the parent (%v)", err)
	}
}

func sortLines(s string) string {
	out := ""
	for _, word := range []string{"about-to-fail", "no-luck"} {
		if strings.Contains(s, word) {
			out += word
			s = strings.Replace(s, word, "", 1)
		}
	}
	return out + strings.ReplaceAll(s, "\n", "")
}

// TestHookHangs checks that a hook that does not end is ended, and that the
// child is usable. It takes as long as a hook may: 10 seconds.
func TestHookHangs(t *testing.T) {
	harness.OnlyOnce(t, "it waits for a time-out")
	n := harness.NewNode(t)
	n.Create("box")
	n.Hook("box", "10-hangs", "brood 2", "755")
	n.Hook("box", "20-after", "say after", "755")
	r, err := n.Machine.Fork(harness.AsOwner, "box", api.ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	child := n.Children(r)[0]
	hooks := child.Identity.Hooks
	if len(hooks) != 2 || hooks[0].ExitCode != 137 || !hooks[0].TimedOut || hooks[0].DurationMS < 10_000 || hooks[0].DurationMS > float64(harness.Timeout.Milliseconds()) || hooks[1].Output != "after\n" {
		t.Errorf("hooks are %+v", hooks)
	}
	harness.Eventually(t, "processes of the hook", func() error { return n.NoProcesses(child.ID) })
}

// TestIdentityInTheWay has a directory and a link to nowhere where a sandbox is told
// who it is. It must be possible to fork and to wake it all the same.
func TestIdentityInTheWay(t *testing.T) {
	ctx := harness.AsOwnerIn(t)
	n := harness.NewNode(t)
	n.Create("box")
	for _, c := range []api.FileChange{
		{FileRef: harness.At("/etc/machine-id"), Action: api.FileRemove},
		{FileRef: harness.At("/etc/machine-id"), Action: api.FileMkdir},
	} {
		if err := n.ChangeFile("box", c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Machine.WriteArchive(ctx, "box", harness.At("/etc"), false, harness.TarOf(t, &tar.Header{Typeflag: tar.TypeSymlink, Name: "hostname", Linkname: "/nowhere/at/all"})); err != nil {
		t.Fatal(err)
	}
	r, err := n.Machine.Fork(ctx, "box", api.ForkRequest{NewHostname: true})
	if err != nil {
		t.Fatal(err)
	}
	child := n.Children(r)[0]
	if u := child.Identity.Unwritten; len(u) != 1 || !strings.HasPrefix(u[0], "/etc/machine-id: ") {
		t.Errorf("not written are %q", u)
	}
	n.MustRead(child.ID, "/etc/hostname", child.Identity.Hostname+"\n")
	if _, err := n.Machine.Hibernate(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	if got := n.Guest("box", "say", "awake"); got != "awake\n" {
		t.Errorf("woken, it says %q", got)
	}
	// A child cannot be told that it is another one now, which promotion would need.
	_, err = n.Machine.Promote(ctx, child.ID)
	harness.WantCode(t, err, api.CodeUnsupported)
	for ref, host := range map[string]string{"box": "box", child.ID: child.Identity.Hostname} {
		if got := n.Guest(ref, "say", "env:HOSTNAME"); got != host+"\n" {
			t.Errorf("%s says that it is %q", ref, got)
		}
	}
}

// TestHosts checks what becomes of the lines of /etc/hosts that a user wrote, and that the file is there though the
// image has none.
func TestHosts(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	const local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	n.MustRead("box", api.HostsFile, local+"127.0.1.1\tbox\t# ramet\n")
	const before, after = "127.0.0.1 localhost\n10.0.0.1 db # mine\n", "10.0.0.2 cache"
	n.Guest("box", "write", api.HostsFile, before+"127.0.1.1 box # ramet\n"+after)
	child := n.Fork("box", 1)[0]
	n.MustRead(child.ID, api.HostsFile, before+"127.0.1.1 box # ramet\n"+after)
	n.MustRead("box", api.HostsFile, before+"127.0.1.1 box # ramet\n"+after)
	// Names that a sandbox had lead to it still.
	r, err := n.Machine.Fork(harness.AsOwner, "box", api.ForkRequest{Hostname: "other"})
	if err != nil {
		t.Fatal(err)
	}
	renamed := n.Children(r)[0]
	n.MustRead(renamed.ID, api.HostsFile, before+"127.0.1.1\tother box\t# ramet\n"+after)
	// A file without a line of ours gets one.
	n.Guest("box", "write", api.HostsFile, after)
	child = n.Fork("box", 1)[0]
	n.MustRead(child.ID, api.HostsFile, local+after+"\n127.0.1.1\t"+child.Identity.Hostname+"\t# ramet\n")
}

// TestHostname forks, restores and promotes sandboxes that keep their host name or get another one.
func TestHostname(t *testing.T) {
	ctx := harness.AsOwnerIn(t)
	n := harness.NewNode(t)
	if _, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "base", Hostname: "db.example.org"}); err != nil {
		t.Fatal(err)
	}
	is := func(ref, host string) {
		t.Helper()
		s := n.Get(ref)
		if got := strings.Fields(n.Guest(ref, "id")); s.Identity.Hostname != host || got[2] != host {
			t.Errorf("%s has the host name %s, and %s inside, not %s", ref, s.Identity.Hostname, got[2], host)
		}
		if got := n.Guest(ref, "say", "env:HOSTNAME", "file:/etc/hostname"); got != host+"\n"+host+"\n" {
			t.Errorf("%s says that it is %q, not %s", ref, got, host)
		}
	}
	is("base", "db.example.org")
	fork := func(req api.ForkRequest) []*api.Sandbox {
		t.Helper()
		r, err := n.Machine.Fork(ctx, "base", req)
		if err != nil {
			t.Fatal(err)
		}
		return n.Children(r)
	}
	for _, child := range fork(api.ForkRequest{Names: []string{"one", "two"}}) {
		is(child.ID, "db.example.org")
	}
	for i, child := range fork(api.ForkRequest{Names: []string{"three", "four"}, NewHostname: true}) {
		is(child.ID, []string{"three", "four"}[i])
	}
	own := fork(api.ForkRequest{NewHostname: true})[0]
	is(own.ID, strings.ReplaceAll(own.ID, "_", "-"))
	other := fork(api.ForkRequest{Hostname: "other"})[0]
	is(other.ID, "other")
	snap, err := n.Machine.Snapshot(ctx, other.ID, api.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	restored, err := n.Machine.Restore(ctx, snap.ID, api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	is(n.Children(restored)[0].ID, "other")
	if restored, err = n.Machine.Restore(ctx, snap.ID, api.RestoreRequest{Hostname: "third"}); err != nil {
		t.Fatal(err)
	}
	third := n.Children(restored)[0]
	is(third.ID, "third")
	if hosts := n.Guest(third.ID, "say", "file:/etc/hosts"); !strings.Contains(hosts, "127.0.1.1\tthird other db.example.org\t") {
		t.Errorf("/etc/hosts is %q", hosts)
	}
	if _, err := n.Machine.Promote(ctx, other.ID); err != nil {
		t.Fatal(err)
	}
	is("base", "db.example.org")
	for field, req := range map[string]api.ForkRequest{"new_hostname": {Hostname: "a", NewHostname: true}, "hostname": {Hostname: "-a"}} {
		if _, err := n.Machine.Fork(ctx, "base", req); api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), field) {
			t.Errorf("%+v: %v", req, err)
		}
	}
}
