package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"ramet.dev/ramet/internal/network/truststore"
)

// The probes here are about what sandboxes with a network need of the host. A sandbox without
// a network starts without all of it, so that no probe fails.

const (
	// resolverTimeout bounds the wait for an answer of the name servers.
	resolverTimeout = 2 * time.Second
	// maxServers is how many servers resolvers use.
	maxServers = 3
	// maxBundle bounds a file of certificates that is read.
	maxBundle = 16 << 20

	resolvConf = "etc/resolv.conf"
)

// probeResolver asks the name servers of the host a question.
func probeResolver(ctx context.Context, m *machine) Finding {
	text, err := m.text(resolvConf)
	if err != nil {
		return warn("write /etc/resolv.conf with a line 'nameserver ADDRESS'", "sandboxes with a network cannot look up names: %v", err)
	}
	servers := nameServers(text)
	if len(servers) == 0 {
		return ok("not checked: /etc/resolv.conf names no server")
	}
	ctx, cancel := context.WithTimeout(ctx, resolverTimeout)
	defer cancel()
	answers := make(chan error, len(servers))
	for _, s := range servers {
		go func() { answers <- ask(ctx, net.JoinHostPort(s, cmp.Or(m.dnsPort, "53"))) }()
	}
	answered := 0
	var failed error
	for range servers { // each ends with ctx
		if err := <-answers; err != nil {
			failed = err
		} else {
			answered++
		}
	}
	list := strings.Join(servers, ", ")
	switch {
	case answered == len(servers):
		return ok("%s answers", list)
	case answered > 0:
		return warn("remove the server from /etc/resolv.conf", "%d of %s answer: %v", answered, list, failed)
	}
	return warn("set a name server that can be reached in /etc/resolv.conf", "%s did not answer within %v: %v", list, resolverTimeout, failed)
}

// nameServers returns the addresses of the servers in the text of a resolv.conf.
func nameServers(text string) (servers []string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" || len(servers) == maxServers {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, a.String())
		}
	}
	return servers
}

// ask asks a server for the address of localhost, which it knows itself. Any answer will do.
func ask(ctx context.Context, server string) error {
	id := uint16(rand.Uint32())
	question := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("localhost."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	packet, err := question.Pack()
	if err != nil {
		return fmt.Errorf("write question: %w", err)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", server)
	if err != nil {
		return err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := c.Write(packet); err != nil {
		return err
	}
	answer := make([]byte, 1500)
	for {
		n, err := c.Read(answer)
		if err != nil {
			return err
		}
		var p dnsmessage.Parser
		if h, err := p.Start(answer[:n]); err == nil && h.ID == id && h.Response {
			return nil
		}
	}
}

// probeProxy checks the variables by which the host says how it reaches the outside.
func probeProxy(_ context.Context, m *machine) Finding {
	name, via := m.variable("HTTPS_PROXY")
	noName, except := m.variable("NO_PROXY")
	if via == "" {
		return ok("no HTTPS_PROXY")
	}
	host, err := proxyHost(via)
	if err != nil { // without the value, which may have a password
		return warn("set it to the URL of a proxy, such as http://proxy.example.com:3128", "%s: %v", name, err)
	}
	for entry := range strings.SplitSeq(except, ",") {
		if err := validException(strings.TrimSpace(entry)); err != nil {
			return warn("set it to names, addresses and ranges with commas between them, such as localhost,.example.com,10.0.0.0/8", "%s: %v", noName, err)
		}
	}
	return ok("%s is %s", name, host)
}

// variable returns a variable of the environment, whose name may be in small letters.
func (m *machine) variable(name string) (as, value string) {
	for _, as := range []string{name, strings.ToLower(name)} {
		if v := m.getenv(as); v != "" {
			return as, v
		}
	}
	return name, ""
}

// proxyHost returns the host and port of the URL of a proxy.
func proxyHost(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text // as other programs take it
	}
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Hostname() == "":
		return "", errors.New("it is not the URL of a proxy")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("its scheme is %q: it can be http or https", u.Scheme)
	}
	return u.Host, nil
}

// validException checks an entry of NO_PROXY.
func validException(entry string) error {
	switch {
	case entry == "" || entry == "*":
		return nil
	case strings.Contains(entry, "://"), strings.ContainsAny(entry, " \t;"):
		return fmt.Errorf("%q is not a name, an address or a range", entry)
	case strings.Contains(entry, "/"):
		if _, err := netip.ParsePrefix(entry); err != nil {
			return fmt.Errorf("%q is not a range of addresses", entry)
		}
		return nil
	}
	if host, port, err := net.SplitHostPort(entry); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
			return fmt.Errorf("%q does not end with a port from 1 to 65535", entry)
		}
	}
	return nil
}

// debianCAs is the directory of the certificates that Debian's own bundle consists of.
const debianCAs = "usr/share/ca-certificates/mozilla"

// probeCABundle looks for the certificates by which the gateway of sandboxes checks servers.
func probeCABundle(_ context.Context, m *machine) Finding {
	file, bundle, err := m.caBundle()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warn("install the package ca-certificates", "no bundle of certificates was found: servers with TLS cannot be checked where a rule ends TLS")
	case err != nil:
		return warn("let this user read "+file, "%v", err)
	}
	n := truststore.Count(bundle)
	if n == 0 {
		return warn("install the package ca-certificates again", "%s has no certificates", file)
	}
	debian, err := m.debianBundle()
	if err != nil {
		return ok("%s has %d certificates; which of them Debian's bundle lacks is not known here", file, n)
	}
	own := truststore.Count(truststore.Missing(bundle, debian))
	return ok("%s has %d certificates, %d of which Debian's bundle lacks", file, n, own)
}

// caBundle returns the first bundle of the host, or that of SSL_CERT_FILE.
func (m *machine) caBundle() (file string, text []byte, err error) {
	files := truststore.HostBundles()
	if f := m.getenv("SSL_CERT_FILE"); f != "" {
		files = []string{f}
	}
	for _, f := range files {
		if text, err = readBounded(m.path(f)); !errors.Is(err, fs.ErrNotExist) {
			return path.Join("/", f), text, err
		}
	}
	return "", nil, fs.ErrNotExist
}

// debianBundle returns the certificates of Debian's package, in PEM.
func (m *machine) debianBundle() ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(m.path(debianCAs), "*.crt"))
	if err != nil || len(files) == 0 {
		return nil, fs.ErrNotExist
	}
	var all []byte
	for _, f := range files {
		text, err := readBounded(f)
		if err != nil {
			return nil, err
		}
		all = append(append(all, text...), '\n')
	}
	return all, nil
}

// readBounded reads a file of up to maxBundle bytes.
func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBundle+1))
	if err == nil && len(text) > maxBundle {
		err = fmt.Errorf("%s is larger than %d MiB", file, maxBundle>>20)
	}
	return text, err
}
