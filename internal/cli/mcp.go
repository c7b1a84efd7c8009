package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/mcp"
	"ramet.dev/ramet/skills"
)

func (a *app) mcpCommand() *cobra.Command {
	var address string
	cmd := &cobra.Command{
		Use: "mcp", Short: "Give agents sandboxes, by the Model Context Protocol", Args: cobra.NoArgs,
		Long: "Serve the Model Context Protocol on standard input and output, for a program that agents run in: it starts this command by itself. The tools have the rights of this user, or of the token that --token-file names.\n\n" +
			"With --http it is served over HTTP, at /mcp, to clients on this machine that send a token of the daemon (see 'ramet token'): each request has the rights of its token.",
		RunE: a.Connected(func(ctx context.Context, c *client.Client, _ []string) error {
			if address != "" {
				return a.serveMCP(ctx, c, address)
			}
			start := func(ctx context.Context) error {
				again, _, err := a.Reach(ctx, true)
				if err == nil {
					again.Close()
				}
				return err
			}
			return mcp.ServeStdio(ctx, a.Version.Version, c, start)
		}),
	}
	cmd.Flags().StringVar(&address, "http", "", "HOST:PORT of this machine to listen on, for clients with a token")
	return cmd
}

// serveMCP serves the protocol over HTTP until ctx ends.
func (a *app) serveMCP(ctx context.Context, c *client.Client, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return api.Invalid("http", "%q is not HOST:PORT", address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return api.Invalid("http", "%s can be reached from other machines, and tokens must not travel in the clear: listen on 127.0.0.1 and let a proxy with TLS pass requests on", address)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return api.Invalid("http", "%v", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.Handler(a.Version.Version, func(token string) (*client.Client, error) { return c.As(token, "") }))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Fprintf(a.Err, "serving MCP at http://%s/mcp\n", l.Addr())
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (a *app) skillCommand() *cobra.Command {
	return &cobra.Command{
		Use: "skill", Short: "Print a skill: how coding agents use this command line", Args: cobra.NoArgs,
		Long: "Print a page in the form of Agent Skills, for agents that work with commands instead of tools. Claude Code, for example, reads it as .claude/skills/ramet/SKILL.md of a project or of the home directory.",
		RunE: func(*cobra.Command, []string) error {
			return a.Show(map[string]any{"name": "ramet", "text": skills.Ramet}, func(w io.Writer) error {
				_, err := io.WriteString(w, skills.Ramet)
				return err
			})
		},
	}
}
