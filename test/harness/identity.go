package harness

import (
	"fmt"
	"strings"

	"ramet.dev/ramet/api"
)

// Hook puts a script for the guest program where fork hooks are.
func (n *Node) Hook(ref, name, script, mode string) {
	n.T.Helper()
	n.Guest(ref, "write", "/etc/ramet/fork.d/"+name, "#!/bin/guest "+script+"\n", mode)
}

// MustBe checks that the inside of a sandbox agrees with what it is said to be.
func (n *Node) MustBe(s *api.Sandbox, forkIndex int) {
	n.T.Helper()
	id := s.Identity
	host := id.Hostname // of a child that of its parent, unless it was to have another one
	if s.Parent == "" {
		if host = s.Name; host == "" {
			host = strings.ReplaceAll(s.ID, "_", "-")
		}
	}
	if id.SandboxID != s.ID || id.ForkIndex != forkIndex || id.Hostname != host || len(id.MachineID) != 32 {
		n.T.Errorf("%s has the identity %+v", s.ID, id)
	}
	want := fmt.Sprintf("%s\n%d\n%s\n%s\n%s\n%s\n%d\n", s.ID, forkIndex, host, host, id.MachineID, s.ID, forkIndex)
	if got := n.Guest(s.ID, "say", "env:RAMET_SANDBOX_ID", "env:RAMET_FORK_INDEX", "env:HOSTNAME", "file:/etc/hostname", "file:/etc/machine-id", "file:/run/ramet/id", "file:/run/ramet/fork-index"); got != want {
		n.T.Errorf("inside of %s is %q, not %q", s.ID, got, want)
	}
	if hosts := n.Guest(s.ID, "say", "file:/etc/hosts"); !strings.HasPrefix(hosts, "127.0.0.1\tlocalhost\n::1\tlocalhost ") || strings.Count(hosts, "\n127.0.1.1\t"+host+"\t")+strings.Count(hosts, "\n127.0.1.1\t"+host+" ") != 1 || strings.Count(hosts, "127.0.1.1") != 1 {
		n.T.Errorf("/etc/hosts of %s is %q", s.ID, hosts)
	}
	if got := strings.Fields(n.Guest(s.ID, "id")); got[2] != host {
		n.T.Errorf("host name of %s is %q, not %q", s.ID, got[2], host)
	}
}
