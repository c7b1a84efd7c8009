package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/session"
	"ramet.dev/ramet/internal/cli/values"
)

func (g *Group) testCommand() *cobra.Command {
	var protocol string
	cmd := &cobra.Command{
		Use: "test SBX HOST[:PORT]", Short: "Ask whether a sandbox may connect, and which rule decides", Args: cobra.ExactArgs(2), ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		Long: "Ask whether a sandbox may connect, and which rule decides. Nothing is looked up and no connection is made: a name is judged as if it had a public address.\n\n" +
			"The exit code is 0 if the connection would be allowed, and 1 if not.",
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			test, err := parseTest(args[1], protocol)
			if err != nil {
				return err
			}
			res, err := c.Networks.Test(ctx, args[0], test)
			if err != nil {
				return err
			}
			verdict := "allowed by: "
			if !res.Allowed {
				verdict = "denied by: "
			}
			if err := g.Show(res, console.Line(verdict+res.Rule+remedy(res.WouldAllow))); err != nil {
				return err
			}
			if !res.Allowed {
				return session.ExitError(1)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&protocol, "protocol", "tcp", "tcp, udp, or echo (ping), which has no port")
	values.CompleteValues(cmd, "protocol", "tcp", "udp", "echo")
	return cmd
}

// remedy says which rule would change a denial.
func remedy(rule string) string {
	if rule == "" {
		return ""
	}
	return "; --allow " + rule + " would allow it"
}

// parseTest parses the address of a connection: NAME:PORT, IP:PORT or [IP]:PORT, and without a port
// for pings.
func parseTest(address, protocol string) (api.NetworkTest, error) {
	test := api.NetworkTest{Protocol: protocol, Host: address}
	switch protocol {
	case "tcp", "udp":
	case "echo":
		test.Host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
		if _, err := netip.ParseAddr(test.Host); err != nil && strings.Contains(test.Host, ":") {
			return test, api.Invalid("host", "%q has a port, and pings have none", address)
		}
		return test, nil
	default:
		return test, api.Invalid("protocol", "%q is not tcp, udp or echo", protocol)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		if _, err := netip.ParseAddr(address); err == nil && strings.Contains(address, ":") {
			address = "[" + address + "]"
		}
		return test, api.Invalid("host", "%q has no port: say %s:443", address, address)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return test, api.Invalid("host", "%q: %q is not a port from 1 to 65535", address, port)
	}
	if host == "" {
		return test, api.Invalid("host", "%q has no host: say HOST:%d", address, n)
	}
	test.Host, test.Port = host, uint16(n)
	return test, nil
}

func (g *Group) logCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "log SBX", Short: "Show the decisions about connections of a sandbox", Args: cobra.ExactArgs(1), ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		Long: "Show the decisions about connections, name look-ups and pings of a sandbox, one line each: time, verdict, protocol, destination, rule. A connection that was allowed has a second line when it has ended, with the bytes to and from the sandbox.\n\n" +
			"A gateway keeps the last 1024 decisions about a sandbox, and fewer if there are many sandboxes. Following ends when the sandbox is destroyed.",
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			return c.Networks.Log(ctx, args[0], follow, g.writeDecision)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "follow new decisions")
	return cmd
}

// writeDecision prints one line.
func (g *Group) writeDecision(e api.NetworkLogEntry) error {
	if g.JSON {
		return g.WriteJSON(e)
	}
	if e.Lost > 0 {
		fmt.Fprintf(g.Err, "ramet: %d decisions before this one were lost\n", e.Lost)
	}
	_, err := io.WriteString(g.Out, console.Printable(strings.TrimRight(fmt.Sprintf("%s  %-7s  %-4s  %s  %s", e.At.UTC().Format(time.RFC3339), e.Verdict, e.Protocol, destination(&e), outcome(&e)), " "))+"\n")
	return err
}

// destination returns what a decision is about: the name, if there is one, and the address.
func destination(e *api.NetworkLogEntry) string {
	host := e.Address
	if e.Port != 0 {
		host = net.JoinHostPort(e.Address, strconv.Itoa(int(e.Port)))
	}
	switch {
	case e.Method != "":
		return e.Method + " " + e.Name + e.Path
	case e.Name == "":
		return host
	case host == "":
		return e.Name
	}
	return e.Name + " (" + host + ")"
}

// outcome returns the rule that decided, or how much has passed at the end, and of a request the
// answer.
func outcome(e *api.NetworkLogEntry) string {
	if e.Method != "" {
		parts := []string{e.Rule + remedy(e.WouldAllow)}
		if e.Status != 0 {
			parts = append(parts, "answered "+strconv.Itoa(e.Status))
		}
		if len(e.Secrets) > 0 {
			parts = append(parts, "with "+strings.Join(e.Secrets, ", "))
		}
		if e.Held != "" {
			parts = append(parts, "held as "+e.Held)
		}
		return strings.Join(parts, "; ")
	}
	if e.DurationMS > 0 {
		return fmt.Sprintf("ended after %s: %s in, %s out", console.Millis(e.DurationMS), console.ByteSize(e.BytesIn), console.ByteSize(e.BytesOut))
	}
	return e.Rule + remedy(e.WouldAllow)
}
