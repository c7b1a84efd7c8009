package dns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// The files of the host that say how it resolves names.
const (
	ResolvConf = "/etc/resolv.conf"
	HostsFile  = "/etc/hosts"
)

const (
	// rereadAfter is how long what was read in a file is believed.
	rereadAfter = time.Second
	// maxFile bounds what is read of one.
	maxFile = 1 << 20
	// maxServers is how many servers of resolv.conf count, as for libc.
	maxServers = 3
	// maxTimeout bounds the time that resolv.conf gives a server.
	maxTimeout = 5 * time.Second
	// payloadSize is the most bytes that are taken in a datagram (dnsflagday.net/2020).
	payloadSize = 1232
)

// errNoServer says that the host's resolver has no servers.
var errNoServer = errors.New("the host's resolv.conf names no server")

// Upstream is the host's resolver: its servers, and the names in its hosts file. Both files are
// read again when they change. It is safe for concurrent use.
type Upstream struct {
	resolvConf, hosts string
	port              string // 53 but in tests

	mu      sync.Mutex
	read    time.Time
	config  *dns.ClientConfig       // guarded by mu
	names   map[string][]netip.Addr // guarded by mu
	changed [2]time.Time            // of the files, as they were read; guarded by mu
}

// NewUpstream returns the resolver of two such files.
func NewUpstream(resolvConf, hosts string) *Upstream {
	return &Upstream{resolvConf: resolvConf, hosts: hosts}
}

// files returns what the files say.
func (u *Upstream) files() (*dns.ClientConfig, map[string][]netip.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.read) < rereadAfter {
		return u.config, u.names
	}
	u.read = time.Now()
	if t := modified(u.resolvConf); u.config == nil || !t.Equal(u.changed[0]) {
		config, err := dns.ClientConfigFromFile(u.resolvConf)
		if err != nil { // there is none, or it is being replaced
			config = &dns.ClientConfig{}
		}
		u.config, u.changed[0] = config, t
	}
	if t := modified(u.hosts); u.names == nil || !t.Equal(u.changed[1]) {
		names, err := readHosts(u.hosts)
		if err != nil {
			names = map[string][]netip.Addr{}
		}
		u.names, u.changed[1] = names, t
	}
	return u.config, u.names
}

func modified(path string) time.Time {
	fi, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return fi.ModTime()
}

// readHosts reads a hosts file (hosts(5)).
func readHosts(path string) (map[string][]netip.Addr, error) {
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string][]netip.Addr{}, nil
	}
	if err == nil && fi.Size() > maxFile {
		err = fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read hosts file: %w", err)
	}
	return parseHosts(string(text)), nil
}

func parseHosts(text string) map[string][]netip.Addr {
	names := map[string][]netip.Addr{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		addr, err := netip.ParseAddr(fields[0])
		if err != nil || addr.Zone() != "" {
			continue
		}
		for _, name := range fields[1:] {
			if _, is := dns.IsDomainName(name); !is {
				continue
			}
			name = canonical(name)
			names[name] = append(names[name], addr.Unmap())
		}
	}
	return names
}

// canonical returns a name in lower case and without the dot at its end.
func canonical(name string) string { return strings.TrimSuffix(dns.CanonicalName(name), ".") }

// local returns the addresses of a name in the hosts file.
func (u *Upstream) local(name string) []netip.Addr {
	_, names := u.files()
	return names[name]
}

// exchange asks the servers one after the other, and returns the first answer that says
// something about the name.
func (u *Upstream) exchange(ctx context.Context, q dns.Question) (*dns.Msg, error) {
	config, _ := u.files()
	if len(config.Servers) == 0 {
		return nil, errNoServer
	}
	timeout := min(max(time.Duration(config.Timeout)*time.Second, time.Second), maxTimeout)
	port := config.Port
	if u.port != "" {
		port = u.port
	}
	var last error
	for range min(max(config.Attempts, 1), 3) {
		for _, server := range config.Servers[:min(len(config.Servers), maxServers)] {
			reply, err := ask(ctx, net.JoinHostPort(server, port), q, timeout)
			if err == nil {
				return reply, nil
			}
			last = err
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	}
	return nil, last
}

// ask asks one server: in a datagram, and in a stream if the answer does not fit. The id is
// random, and so is the port: each question has a socket of its own.
func ask(ctx context.Context, server string, q dns.Question, timeout time.Duration) (*dns.Msg, error) {
	m := &dns.Msg{Question: []dns.Question{q}}
	m.Id = dns.Id()
	m.RecursionDesired = true
	m.SetEdns0(payloadSize, false)
	for _, network := range []string{"udp", "tcp"} {
		c := dns.Client{Net: network, Timeout: timeout, UDPSize: payloadSize}
		reply, _, err := c.ExchangeContext(ctx, m, server)
		if err != nil {
			return nil, fmt.Errorf("ask the host's resolver: %w", err)
		}
		if reply.Truncated && network == "udp" {
			continue
		}
		if !reply.Response || len(reply.Question) != 1 || !sameQuestion(reply.Question[0], q) {
			return nil, errors.New("ask the host's resolver: the answer is to another question")
		}
		if reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
			return nil, fmt.Errorf("ask the host's resolver: it answers %s", dns.RcodeToString[reply.Rcode])
		}
		return reply, nil
	}
	return nil, errors.New("ask the host's resolver: the answer is truncated")
}

func sameQuestion(a, b dns.Question) bool {
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && canonical(a.Name) == canonical(b.Name)
}
