package integration

import (
	"archive/tar"
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// mustBe checks that the inside of a sandbox agrees with what it is said to be.
func (n *testNode) mustBe(s *api.Sandbox, forkIndex int) {
	n.t.Helper()
	id := s.Identity
	host := s.Name
	if host == "" {
		host = strings.ReplaceAll(s.ID, "_", "-")
	}
	if id.SandboxID != s.ID || id.ForkIndex != forkIndex || id.Hostname != host || len(id.MachineID) != 32 {
		n.t.Errorf("%s has the identity %+v", s.ID, id)
	}
	want := fmt.Sprintf("%s\n%d\n%s\n%s\n%s\n", s.ID, forkIndex, host, host, id.MachineID)
	if got := n.guest(s.ID, "say", "env:RAMET_SANDBOX_ID", "env:RAMET_FORK_INDEX", "env:HOSTNAME", "file:/etc/hostname", "file:/etc/machine-id"); got != want {
		n.t.Errorf("inside of %s is %q, not %q", s.ID, got, want)
	}
	if hosts := n.guest(s.ID, "say", "file:/etc/hosts"); !strings.HasPrefix(hosts, "127.0.0.1\tlocalhost\n::1\tlocalhost ") || strings.Count(hosts, "\n127.0.1.1\t"+host+"\t") != 1 || strings.Count(hosts, "127.0.1.1") != 1 {
		n.t.Errorf("/etc/hosts of %s is %q", s.ID, hosts)
	}
	if got := strings.Fields(n.guest(s.ID, "id")); got[2] != host {
		n.t.Errorf("host name of %s is %q, not %q", s.ID, got[2], host)
	}
}

// TestIdentity checks who sandboxes are after each way to make one, and that no
// two are the same.
func TestIdentity(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	parent := n.create("parent")
	n.mustBe(parent, 0)
	r, err := n.m.Fork(ctx, "parent", api.ForkRequest{Names: []string{"a", "b", "c"}, Env: map[string]string{"X": "of the fork"}})
	if err != nil {
		t.Fatal(err)
	}
	all := append([]*api.Sandbox{parent}, n.children(r)...)
	for i, c := range n.children(r) {
		n.mustBe(c, i)
		if got := n.guest(c.ID, "say", "env:X"); got != "of the fork\n" {
			t.Errorf("X in a child is %q", got)
		}
	}
	grandchildren := n.fork("c", 2)
	all = append(all, grandchildren...)
	for i, c := range grandchildren {
		n.mustBe(c, i)
		if got := n.guest(c.ID, "say", "env:X"); got != "of the fork\n" {
			t.Errorf("X in a grandchild is %q", got)
		}
	}
	if got := n.guest("parent", "say", "env:X"); got != "\n" {
		t.Errorf("X in the parent is %q", got)
	}
	if _, err := n.m.Snapshot(ctx, "parent", api.SnapshotRequest{Name: "snap"}); err != nil {
		t.Fatal(err)
	}
	if r, err = n.m.Restore(ctx, "snap", api.RestoreRequest{Count: 2}); err != nil {
		t.Fatal(err)
	}
	all = append(all, n.children(r)...)
	for i, c := range n.children(r) {
		n.mustBe(c, i)
	}
	machines := map[string]string{}
	for _, s := range all {
		if other, ok := machines[s.Identity.MachineID]; ok {
			t.Errorf("%s has the machine id of %s", s.ID, other)
		}
		machines[s.Identity.MachineID] = s.ID
	}
	back, err := n.m.Rollback(ctx, "parent", "snap")
	if err != nil {
		t.Fatal(err)
	}
	if back.ID != parent.ID || back.Identity.MachineID != parent.Identity.MachineID {
		t.Errorf("rollback changed the identity to %+v", back.Identity)
	}
	n.mustBe(back, 0)
	promoted, err := n.m.Promote(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	if promoted.ID != parent.ID || promoted.Identity.MachineID != parent.Identity.MachineID {
		t.Errorf("promotion changed the identity to %+v", promoted.Identity)
	}
	n.mustBe(promoted, 0)
	_, err = n.m.Get(ctx, "b")
	wantCode(t, err, api.CodeNotFound)
}

// hook puts a script for the guest program where fork hooks are.
func (n *testNode) hook(ref, name, script, mode string) {
	n.t.Helper()
	n.guest(ref, "write", "/etc/ramet/fork.d/"+name, "#!/bin/guest "+script+"\n", mode)
}

// TestHooks checks that all hooks run in each child, in the order of their
// names, before the fork returns, and that the outcome of each is reported.
func TestHooks(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	box := n.create("box")
	if len(box.Identity.Hooks) != 0 {
		t.Errorf("a created sandbox has hooks %+v", box.Identity.Hooks)
	}
	n.hook("box", "30-after", "say after the one that failed", "755")
	n.hook("box", "20-fails", "say about-to-fail err:no-luck exit:7", "755")
	n.hook("box", "10-identity", "say env:RAMET_SANDBOX_ID env:RAMET_FORK_INDEX file:/etc/machine-id", "755")
	n.hook("box", "40-acts", "write /var/hooked yes", "755")
	n.hook("box", "50-disabled", "say no", "644")
	if err := n.change1("box", api.FileChange{FileRef: at("/etc/ramet/fork.d/55-directory"), Action: api.FileMkdir}); err != nil {
		t.Fatal(err)
	}
	n.hook("box", "60-crashes", "kill 9", "755")
	n.hook("box", "70-spews", "spew 100000", "755")
	r, err := n.m.Fork(ctx, "box", api.ForkRequest{Count: 2})
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
		if got := n.guest(c.Sandbox.ID, "cat", "/var/hooked"); got != "yes" {
			t.Errorf("hook left %q", got)
		}
	}
	if out, err := n.exec("box", "cat", "/var/hooked"); err != nil || out.OK {
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
	n := newNode(t)
	n.create("box")
	n.hook("box", "10-hangs", "brood 2", "755")
	n.hook("box", "20-after", "say after", "755")
	r, err := n.m.Fork(asOwner, "box", api.ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	child := n.children(r)[0]
	hooks := child.Identity.Hooks
	if len(hooks) != 2 || hooks[0].ExitCode != 137 || !hooks[0].TimedOut || hooks[0].DurationMS < 10_000 || hooks[0].DurationMS > 20_000 || hooks[1].Output != "after\n" {
		t.Errorf("hooks are %+v", hooks)
	}
	eventually(t, "processes of the hook", func() error { return n.noProcesses(child.ID) })
}

// TestIdentityInTheWay has a directory and a link to nowhere where a sandbox is told
// who it is. It must be possible to fork and to wake it all the same.
func TestIdentityInTheWay(t *testing.T) {
	ctx := asOwnerIn(t)
	n := newNode(t)
	n.create("box")
	for _, c := range []api.FileChange{
		{FileRef: at("/etc/machine-id"), Action: api.FileRemove},
		{FileRef: at("/etc/machine-id"), Action: api.FileMkdir},
	} {
		if err := n.change1("box", c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.m.WriteArchive(ctx, "box", at("/etc"), false, tarOf(t, &tar.Header{Typeflag: tar.TypeSymlink, Name: "hostname", Linkname: "/nowhere/at/all"})); err != nil {
		t.Fatal(err)
	}
	child := n.fork("box", 1)[0]
	if u := child.Identity.Unwritten; len(u) != 1 || !strings.HasPrefix(u[0], "/etc/machine-id: ") {
		t.Errorf("not written are %q", u)
	}
	n.mustRead(child.ID, "/etc/hostname", child.Identity.Hostname+"\n")
	if _, err := n.m.Hibernate(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	if got := n.guest("box", "say", "awake"); got != "awake\n" {
		t.Errorf("woken, it says %q", got)
	}
	// A child cannot be told that it is another one now, which promotion would need.
	_, err := n.m.Promote(ctx, child.ID)
	wantCode(t, err, api.CodeUnsupported)
	for ref, host := range map[string]string{"box": "box", child.ID: child.Identity.Hostname} {
		if got := n.guest(ref, "say", "env:HOSTNAME", "file:/etc/hostname"); got != host+"\n"+host+"\n" {
			t.Errorf("%s says that it is %q", ref, got)
		}
	}
}

// TestHosts checks what becomes of the lines of /etc/hosts that a user wrote, and that the file is there though the
// image has none.
func TestHosts(t *testing.T) {
	n := newNode(t)
	n.create("box")
	const local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	n.mustRead("box", api.HostsFile, local+"127.0.1.1\tbox\t# ramet\n")
	const before, after = "127.0.0.1 localhost\n10.0.0.1 db # mine\n", "10.0.0.2 cache"
	n.guest("box", "write", api.HostsFile, before+"127.0.1.1 box # ramet\n"+after)
	child := n.fork("box", 1)[0]
	n.mustRead(child.ID, api.HostsFile, before+"127.0.1.1\t"+child.Identity.Hostname+"\t# ramet\n"+after)
	n.mustRead("box", api.HostsFile, before+"127.0.1.1 box # ramet\n"+after)
	// A file without a line of ours gets one.
	n.guest("box", "write", api.HostsFile, after)
	child = n.fork("box", 1)[0]
	n.mustRead(child.ID, api.HostsFile, local+after+"\n127.0.1.1\t"+child.Identity.Hostname+"\t# ramet\n")
}
