package service

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
	"ramet.dev/ramet/internal/httpwire"
)

// Templates that clients of E2B know, and where the daemon serves them.
var e2bTemplates = []string{"base", "code-interpreter-v1"}

const e2bAddress = "http://127.0.0.1:3000"

// prepareTimeout bounds the making of a template.
const prepareTimeout = 20 * time.Minute

// E2BCommand returns the e2b command.
func (g *Group) E2BCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "e2b", Short: "Prepare the daemon for clients of E2B", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(g.e2bPrepare())
	return cmd
}

func (g *Group) e2bPrepare() *cobra.Command {
	var address, tenant string
	cmd := &cobra.Command{
		Use: "prepare [TEMPLATE...]", Short: "Make the templates of E2B that are missing", ValidArgs: e2bTemplates,
		Long: "Make the templates of E2B that are missing.\n\n" +
			"A client that is the first to use a template waits until its packages are installed, which takes minutes. This command makes " + strings.Join(e2bTemplates, " and ") + " beforehand. " +
			"The daemon must serve clients of E2B (ramet serve --e2b).",
		Args: func(_ *cobra.Command, args []string) error { return validTemplates(args) },
		RunE: g.Connected(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 0 {
				args = e2bTemplates
			}
			base, err := url.Parse(cmp.Or(address, os.Getenv("E2B_API_URL"), e2bAddress))
			if err != nil || base.Host == "" {
				return api.Invalid("url", "%q is not a URL, such as %s", address, e2bAddress)
			}
			t, err := c.Tokens.Create(ctx, api.TokenRequest{Scope: api.ScopeAdmin, Tenant: tenant, Name: "ramet e2b prepare", TTLSeconds: int64(len(args)) * int64(prepareTimeout/time.Second)})
			if err != nil {
				return err
			}
			defer func() { _ = c.Tokens.Remove(context.WithoutCancel(ctx), t.ID) }() // it expires
			return g.prepare(ctx, e2bServer{base, httpwire.E2BKey(t.Secret), &http.Client{Timeout: prepareTimeout}}, args)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&address, "url", "", "URL of the server for clients of E2B; E2B_API_URL (default "+e2bAddress+")")
	f.StringVar(&tenant, "tenant", "", "tenant of the templates (default your own)")
	return cmd
}

func validTemplates(names []string) error {
	for _, name := range names {
		if !slices.Contains(e2bTemplates, name) {
			return api.Invalid("template", "%q is not %s", name, strings.Join(e2bTemplates, " or "))
		}
	}
	return nil
}

// prepared is what the command says about a template.
type prepared struct {
	Template string `json:"template"`
	TookMS   int64  `json:"took_ms"`
}

// prepare starts and ends one sandbox of each template: the server makes what is missing for it.
func (g *Group) prepare(ctx context.Context, s e2bServer, templates []string) error {
	var all []prepared
	for _, name := range templates {
		p, began := g.NewProgress(ctx), time.Now()
		p.Update(api.Progress{Phase: "template " + name})
		err := s.use(ctx, name)
		p.End(err == nil)
		if err != nil {
			return fmt.Errorf("prepare template %s: %w", name, err)
		}
		all = append(all, prepared{name, time.Since(began).Milliseconds()})
	}
	var lines strings.Builder
	for _, p := range all {
		fmt.Fprintf(&lines, "%s  ready\n", p.Template)
	}
	return g.Show(all, console.Line(strings.TrimSuffix(lines.String(), "\n")))
}

// e2bServer is the daemon's server for clients of E2B.
type e2bServer struct {
	base   *url.URL
	key    string
	client *http.Client
}

// use starts a sandbox of a template, and ends it.
func (s e2bServer) use(ctx context.Context, template string) error {
	var made struct {
		SandboxID string `json:"sandboxID"`
	}
	if err := s.call(ctx, http.MethodPost, "/sandboxes", map[string]any{"templateID": template, "timeout": 60}, &made); err != nil {
		return err
	}
	return s.call(ctx, http.MethodDelete, "/sandboxes/"+url.PathEscape(made.SandboxID), nil, nil)
}

// call makes a request, and decodes the answer into out unless that is nil.
func (s e2bServer) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", s.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return api.Errorf(api.CodeUnavailable, "no server for clients of E2B at %s: start 'ramet serve --e2b', or give its --url", s.base)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		var problem struct {
			Message string `json:"message"`
		}
		_ = json.NewDecoder(resp.Body).Decode(&problem) // the status tells enough
		return api.Errorf(api.CodeUnavailable, "%s: %s", resp.Status, problem.Message)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
