package processes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli/console"
)

// publishOptions are the options of the port command about published ports.
type publishOptions struct {
	at    string // [ADDR:]HOSTPORT
	token string // FILE, or randomToken
	end   uint16 // host port to end
}

// randomToken is the value of --token without a file.
const randomToken = "random"

// maxTokenFile bounds the bytes that are read of a file with a token.
const maxTokenFile = 4 << 10

// addTo adds the options to the port command.
func (o *publishOptions) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.at, "publish", "", "[ADDR:]HOSTPORT: have the daemon listen there, on 127.0.0.1 unless ADDR says otherwise; 0 is any free port")
	f.StringVar(&o.token, "token", "", "requests to the published port need the token in FILE (--token=FILE), or a new one, which is printed")
	f.Lookup("token").NoOptDefVal = randomToken
	f.Uint16Var(&o.end, "unpublish", 0, "HOSTPORT: end a published port, with its connections")
}

// valid refuses combinations of options of a command for so many ports.
func (o *publishOptions) valid(f *pflag.FlagSet, ports int) error {
	switch {
	case o.at != "" && f.Changed("address"):
		return errors.New("--address is for forwarding: the address is a part of --publish, as in 0.0.0.0:8080")
	case (o.at != "" || o.end != 0) && f.Changed("url"), o.at != "" && o.end != 0:
		return errors.New("--url, --publish and --unpublish exclude each other")
	case o.at != "" && ports != 1:
		return errors.New("--publish is of one PORT")
	case o.end != 0 && ports != 0:
		return errors.New("--unpublish names the port of the host, and no other PORT")
	case o.token != "" && o.at == "":
		return errors.New("--token is for --publish")
	}
	return nil
}

// request returns the request to publish a port of a sandbox.
func (o *publishOptions) request(port int) (api.PublishRequest, error) {
	req := api.PublishRequest{Port: port}
	text := o.at
	if strings.Contains(text, ":") {
		host, hostPort, err := net.SplitHostPort(text)
		if err != nil || host == "" {
			return req, api.Invalid("publish", "%q is not [ADDR:]HOSTPORT, such as 8080 or [::1]:8080; 0.0.0.0 and [::] are all addresses", o.at)
		}
		if host == "localhost" {
			host = "127.0.0.1"
		}
		req.Address, text = host, hostPort
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return req, api.Invalid("publish", "%q does not end with a port from 0 (any that is free) to 65535", o.at)
	}
	req.HostPort = int(n)
	if o.token == randomToken {
		req.Token = strings.ToLower(rand.Text())
	} else if o.token != "" {
		if req.Token, err = readToken(o.token); err != nil {
			return req, err
		}
	}
	return req, req.Valid()
}

// readToken returns the text of a file without white space around it.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", api.Invalid("token", "%w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", api.Invalid("token", "file %s is empty", path)
	}
	return token, nil
}

// published is a port that was published, with its token if that is new.
type published struct {
	*api.PublishedPort
	Token string `json:"token,omitempty"`
	URL   string `json:"url,omitempty"`
}

// publish has the daemon listen on a port of its host.
func (g *Group) publish(ctx context.Context, c *client.Client, ref, port string, wait time.Duration, o *publishOptions) error {
	n, err := parsePort(port)
	if err != nil {
		return err
	}
	req, err := o.request(n)
	if err != nil {
		return err
	}
	if wait > 0 {
		if _, err := c.Ports.Wait(ctx, ref, n, wait); err != nil {
			return err
		}
	}
	p, err := c.Ports.Publish(ctx, ref, req)
	if err != nil {
		return err
	}
	out := published{PublishedPort: p}
	text := fmt.Sprintf("%s → %s:%d", p.At(), ref, p.Port)
	if o.token == randomToken {
		out.Token = req.Token
		out.URL = (&url.URL{Scheme: "http", Host: p.At(), Path: "/", RawQuery: url.Values{"token": {req.Token}}.Encode()}).String()
		text += "\n" + out.URL
	}
	return g.Show(out, console.Line(text))
}

// unpublish ends a published port.
func (g *Group) unpublish(ctx context.Context, c *client.Client, ref string, hostPort uint16) error {
	return c.Ports.Unpublish(ctx, ref, int(hostPort))
}

// listedPort is a port in a sandbox with the ports of the host that lead to it.
type listedPort struct {
	api.Port
	Published []api.PublishedPort `json:"published,omitempty"`
}

// listPorts lists the ports that processes listen on, and then the published ones that no
// process listens on.
func (g *Group) listPorts(ctx context.Context, c *client.Client, ref string) error {
	ports, err := c.Ports.List(ctx, ref)
	if err != nil {
		return err
	}
	all, err := c.Ports.Published(ctx, ref)
	if err != nil {
		return err
	}
	of := map[int][]api.PublishedPort{}
	for _, p := range all {
		of[p.Port] = append(of[p.Port], p)
	}
	list := make([]listedPort, 0, len(ports))
	for _, p := range ports {
		l := listedPort{Port: p}
		if p.Protocol == "tcp" {
			l.Published = of[p.Port]
			delete(of, p.Port) // of several listeners, the first is shown with it
		}
		list = append(list, l)
	}
	for _, p := range all {
		if of[p.Port] != nil {
			list = append(list, listedPort{Port: api.Port{Port: p.Port, Protocol: "tcp"}, Published: of[p.Port]})
			delete(of, p.Port)
		}
	}
	return g.Show(list, console.Table(portTable(list, len(all) > 0)))
}

// portTable returns the head and the rows of a list of ports, with a column of published ports
// if there are some.
func portTable(list []listedPort, withPublished bool) (head []string, rows [][]string) {
	head = []string{"PORT", "PROTOCOL", "ADDRESS", "PROCESS"}
	if withPublished {
		head = append(head, "PUBLISHED", "USE")
	}
	rows = make([][]string, 0, len(list))
	for _, p := range list {
		process := ""
		if p.PID != 0 {
			process = strconv.Itoa(p.PID) + " " + p.Command
		}
		row := []string{strconv.Itoa(p.Port.Port), p.Protocol, p.Address, process}
		if withPublished {
			var at, uses []string
			for _, e := range p.Published {
				at, uses = append(at, publishedAt(&e)), append(uses, useOf(&e))
			}
			row = append(row, strings.Join(at, ", "), strings.Join(uses, ", "))
		}
		rows = append(rows, row)
	}
	return head, rows
}

// publishedAt returns where a port is published, and what is special about it.
func publishedAt(p *api.PublishedPort) string {
	switch {
	case p.Error != "":
		return p.At() + " (" + p.Error + ")"
	case p.Protected:
		return p.At() + " (token)"
	}
	return p.At()
}

// useOf returns how a published port was used since the daemon started.
func useOf(p *api.PublishedPort) string {
	text := fmt.Sprintf("%d open of %d", p.Connections, p.Accepted)
	if p.Refused > 0 {
		text += fmt.Sprintf("; %d refused", p.Refused)
	}
	return text
}
