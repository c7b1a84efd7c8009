package harness

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
)

// StartServer starts a server in a sandbox and waits until it listens.
func (n *Node) StartServer(ref, kind, addr string) {
	n.T.Helper()
	ctx, cancel := context.WithCancel(AsOwner)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = n.Machine.Exec(ctx, ref, api.ExecRequest{Argv: []string{"guest", "serve", kind, addr}}, DiscardExec()) // it is cancelled
	}()
	n.T.Cleanup(func() { cancel(); <-ended })
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		n.T.Fatal(err)
	}
	Eventually(n.T, "somebody listens on "+addr, func() error {
		ports, err := n.Machine.Ports(AsOwner, ref)
		if err == nil && !slices.ContainsFunc(ports, func(p api.Port) bool { return fmt.Sprint(p.Port) == port }) {
			err = fmt.Errorf("ports are %v", ports)
		}
		return err
	})
}

// DialPort connects and says the first line.
func (n *Node) DialPort(ref string, port uint16, line string) service.PortConn {
	n.T.Helper()
	c, err := n.Machine.DialPort(AsOwner, ref, port, 0)
	if err != nil {
		n.T.Fatalf("dial %d: %v", port, err)
	}
	n.T.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		n.T.Fatal(err)
	}
	return c
}

// RoundTrip says something to an echo server and reads the answer.
func RoundTrip(c net.Conn, text string) error {
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(c, buf); err != nil {
		return err
	}
	if string(buf) != text {
		return fmt.Errorf("%q came back as %q", text, buf)
	}
	return nil
}
