package install

import (
	"os"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, harness.Suite{}))
}

func TestOrdinaryUser(t *testing.T) {
	newNode(t).ShareDatabases()
	harness.AsOrdinaryUser(t)
}

// newNode opens a node with the image "databases", whose sandboxes trust what this machine trusts.
func newNode(t *testing.T) *harness.Node {
	t.Helper()
	n := harness.NewNode(t)
	n.Close()
	n.HostCAs = ""
	n.Open()
	n.UseDatabases(t, []string{"/usr/bin/apt-get", "/usr/bin/pip", "/usr/bin/node", "/usr/bin/curl"})
	return n
}

// create makes a sandbox that reaches the package registries of this machine, and what rules allow.
func create(n *harness.Node, name string, policy api.NetworkPolicy) {
	n.T.Helper()
	_, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{
		Image: "databases", Name: name,
		Network: &api.NetworkRequest{Profile: "host-registries", NetworkPolicy: policy},
	})
	if err != nil {
		n.T.Fatalf("create: %v", err)
	}
}

// shell runs a command of a shell, which must succeed, and returns its output.
func shell(n *harness.Node, ref, command string) string {
	n.T.Helper()
	return n.LongExec(ref, api.ExecRequest{Shell: command})
}

// start starts a command of a shell in the background.
func start(n *harness.Node, ref, command string) (int, *harness.Follower) {
	n.T.Helper()
	p, err := n.Machine.StartProcess(harness.AsOwner, ref, api.StartRequest{Shell: command})
	if err != nil {
		n.T.Fatalf("start %s: %v", command, err)
	}
	return p.PID, n.Follow(ref, p.PID, 0)
}
