package processes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/cli/values"
	"ramet.dev/ramet/internal/peer"
)

// forwardLinger is how long a connection to a sandbox stays open after its client closed both
// directions.
const forwardLinger = time.Minute

// maxForwarded bounds the simultaneous connections of one port.
const maxForwarded = 256

// forward is a local port that leads to a port in a sandbox.
type forward struct {
	Address string `json:"address"` // local
	Port    int    `json:"port"`    // in the sandbox

	listener net.Listener
}

// PortCommand returns the port command.
func (g *Group) PortCommand() *cobra.Command {
	var address string
	var wait time.Duration
	var forBrowser bool
	var publish publishOptions
	cmd := &cobra.Command{
		SuggestFor: []string{"expose", "forward", "port-forward", "publish"},
		Use:        "port SBX [PORT[:LOCAL]…]",
		Short:      "List, forward or publish the ports of a sandbox",
		Long: "List the ports that processes in a sandbox listen on, and those that are published on the host.\n\n" +
			"With PORT, connections to a local port are forwarded to it until the command is interrupted. LOCAL is the local port: the same number if absent, any free port if 0.\n\n" +
			"With --url, nothing is forwarded. The command prints a URL that a browser can open once, within 5 minutes, to reach the port through the daemon. The daemon has to listen for browsers: see 'ramet serve --help'.\n\n" +
			"With --publish, the daemon listens on a port of its host and forwards connections to PORT, also after this command has ended. The published port is stored with the sandbox and comes back with the daemon. It ends with the sandbox, or with --unpublish. Children of a fork do not inherit it. Every user of the host can connect to it, unless it has a token: with --token it speaks HTTP only, and requests need 'Authorization: Bearer TOKEN' or, in a browser, ?token=TOKEN.",
		Args: cobra.MatchAll(cobra.MinimumNArgs(1), func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && wait != 0 {
				return errors.New("--wait is for a PORT that somebody is to listen on: say which")
			}
			if forBrowser && len(args) != 2 {
				return errors.New("--url is of one PORT")
			}
			return publish.valid(cmd.Flags(), len(args)-1)
		}),
		ValidArgsFunction: g.CompleteFirst(g.CompleteSandboxes),
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			if publish.end != 0 {
				return g.unpublish(ctx, c, args[0], publish.end)
			}
			if len(args) == 1 {
				return g.listPorts(ctx, c, args[0])
			}
			if publish.at != "" {
				return g.publish(ctx, c, args[0], args[1], wait, &publish)
			}
			if forBrowser {
				return g.printPortURL(ctx, c, args[0], args[1], wait)
			}
			var forwards []*forward
			for _, arg := range args[1:] {
				f, err := parseForward(arg, address)
				if err != nil {
					return err
				}
				forwards = append(forwards, f)
			}
			return g.forward(ctx, c, args[0], forwards, wait)
		}),
	}
	values.AddressVar(cmd.Flags(), &address, "local address to listen on")
	cmd.Flags().BoolVar(&forBrowser, "url", false, "print a URL that a browser can open once to reach PORT through the daemon")
	values.DurationVar(cmd.Flags(), &wait, "wait", "how long to wait until a process listens on the port")
	publish.addTo(cmd)
	return cmd
}

// printPortURL prints the URL of a port for a browser.
func (g *Group) printPortURL(ctx context.Context, c *client.Client, ref, port string, wait time.Duration) error {
	n, err := parsePort(port)
	if err != nil {
		return err
	}
	if wait > 0 {
		if _, err := c.Ports.Wait(ctx, ref, n, wait); err != nil {
			return err
		}
	}
	s, err := c.Ports.Open(ctx, ref, api.PortSessionRequest{Port: n})
	if err != nil {
		return err
	}
	return g.Show(s, console.Line(s.URL))
}

// parsePort parses a port in the sandbox.
func parsePort(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, api.Invalid("port", "%q is not a port from 1 to 65535", text)
	}
	return int(n), nil
}

// parseForward parses PORT or PORT:LOCAL. If LOCAL is 0, the system chooses it.
func parseForward(arg, address string) (*forward, error) {
	remote, local, both := strings.Cut(arg, ":")
	if !both {
		local = remote
	}
	port, err := strconv.ParseUint(remote, 10, 16)
	here, lerr := strconv.ParseUint(local, 10, 16)
	if err != nil || lerr != nil || port == 0 {
		return nil, api.Invalid("port", "%q is not PORT or PORT:LOCAL, PORT from 1 to 65535 and LOCAL from 0 (any that is free) to 65535", arg)
	}
	return &forward{Port: int(port), Address: net.JoinHostPort(address, strconv.FormatUint(here, 10))}, nil
}

// forward listens on the local ports until ctx ends.
func (g *Group) forward(ctx context.Context, c *client.Client, ref string, forwards []*forward, wait time.Duration) error {
	for _, f := range forwards {
		if wait > 0 {
			if _, err := c.Ports.Wait(ctx, ref, f.Port, wait); err != nil {
				return err
			}
		} else if _, err := c.Sandboxes.Get(ctx, ref); err != nil {
			return err // before listening in vain
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, f := range forwards {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.Address)
		if err != nil {
			cancel()
			return err // the error has the address
		}
		f.listener, f.Address = l, l.Addr().String()
		defer context.AfterFunc(ctx, func() { l.Close() })()
		defer l.Close()
		if err := g.Show(f, console.Line(fmt.Sprintf("%s → %s:%d", f.Address, ref, f.Port))); err != nil {
			cancel()
			return err
		}
		wg.Go(func() {
			g.accept(ctx, c, ref, f)
			cancel()
		})
	}
	<-ctx.Done()
	return ctx.Err()
}

// accept forwards connections until the listener is closed.
func (g *Group) accept(ctx context.Context, c *client.Client, ref string, f *forward) {
	var wg sync.WaitGroup
	defer wg.Wait()
	room := make(chan struct{}, maxForwarded)
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if err := forwardOne(ctx, c, ref, f.Port, conn, forwardLinger); err != nil && ctx.Err() == nil {
				fmt.Fprintln(g.Err, "ramet:", console.Printable(err.Error()))
			}
		})
	}
}

// forwardOne joins a local connection with one to the sandbox until both directions have ended, or
// the local client is gone. It returns errors of connecting only.
func forwardOne(ctx context.Context, c *client.Client, ref string, port int, here net.Conn, linger time.Duration) error {
	defer here.Close()
	there, err := c.Ports.Dial(ctx, ref, port, 0)
	if err != nil {
		peer.Reset(here) // tells the client
		return err
	}
	defer there.Close()
	defer context.AfterFunc(ctx, func() {
		here.Close()
		there.Close()
	})()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := io.Copy(there.Conn, here)
		if err := errors.Join(err, there.CloseWrite()); err != nil {
			here.Close()
			there.Close()
		}
	})
	peer.KeepAlive(here)
	defer peer.WhenGone(here, linger, func() { there.Close() })()
	_, err = there.WriteTo(here)
	if tcp, ok := here.(*net.TCPConn); ok && err == nil {
		err = tcp.CloseWrite()
	}
	if err != nil {
		peer.Reset(here) // tells the client that data is missing
		there.Close()
	}
	wg.Wait()
	return nil
}
