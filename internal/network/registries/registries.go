package registries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"ramet.dev/ramet/api"
)

// maxFile bounds each file that is read.
const maxFile = 1 << 20

// System is a host, or an image.
type System struct {
	Name  string            // as the result tells it: "host", "image"
	Files fs.FS             // of its root directory; links in an image must not lead out of it
	Home  string            // path of the user's home directory below it: "root"
	Env   map[string]string // environment of commands in it
	// Ask runs a command in the system and returns its two outputs, whatever its exit code is. A
	// command that is not there says nothing. It is nil if nothing can be run.
	Ask func(ctx context.Context, argv ...string) (stdout, stderr string, err error)
}

// Registry is a place that packages come from.
type Registry struct {
	Tool string // "apt", "pip", "npm", "cargo", "go", "maven"
	From string // what names it: "host: /etc/pip.conf", "image: npm"
	Host string // name or IP address
	Port uint16 // 0 is the port of the scheme
	// Private is set if it may be at a private address: the system itself names it.
	Private bool
	address *url.URL // as the system has it, without passwords
}

// Result is what was found out.
type Result struct {
	Registries []Registry
	// Proxies are the addresses of proxies that tools or environments name. They are no registries,
	// and rules do not have them.
	Proxies []Registry
	// Problems are files that could not be read, and tools that did not answer.
	Problems []string
}

// tool finds the registries of one kind of packages.
type tool struct {
	name string
	// configured reads the configuration, and byDefault what the tool has for want of one.
	configured func(*collector)
	byDefault  func(context.Context, *collector)
}

var tools = []tool{
	{"apt", aptSources, nil},
	{"pip", pipConfigured, pipDefault},
	{"npm", npmConfigured, npmDefault},
	{"cargo", cargoConfigured, cargoDefault},
	{"go", goConfigured, goDefault},
	{"maven", mavenConfigured, mavenDefault},
}

// Derive reads the configuration of all systems. What cannot be read is a problem of the result, and
// no reason to have none.
func Derive(ctx context.Context, systems ...*System) *Result {
	res := &Result{}
	for _, s := range systems {
		for _, t := range tools {
			c := &collector{System: s, tool: t.name, res: res}
			t.configured(c)
			if !c.replaced && t.byDefault != nil {
				t.byDefault(ctx, c)
			}
		}
		c := &collector{System: s, tool: "environment", res: res}
		for _, key := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"} {
			c.proxy(key, s.Env[key])
		}
	}
	return res
}

// Rules returns the rules that allow all that was found: each name once, sorted. Ports are those of
// the addresses, and else 443 and 80, as archives by http may lead to https.
func (r *Result) Rules() []api.NetworkRule {
	var out []api.NetworkRule
	for _, found := range r.Registries {
		rule := api.NetworkRule{Address: found.Host, Private: found.Private}
		if found.Port != 0 {
			rule.Ports = []api.PortRange{{First: found.Port, Last: found.Port}}
		} else if _, isAddress := rule.Prefix(); isAddress {
			rule.Ports = []api.PortRange{{First: 443, Last: 443}, {First: 80, Last: 80}}
		}
		out = append(out, rule)
	}
	slices.SortFunc(out, func(a, b api.NetworkRule) int { return strings.Compare(a.String(), b.String()) })
	return slices.CompactFunc(out, func(a, b api.NetworkRule) bool { return a.String() == b.String() })
}

// collector takes what one tool of one system says.
type collector struct {
	*System
	tool     string
	res      *Result
	replaced bool // the configuration names a registry in place of the default
}

func (c *collector) problem(from, format string, args ...any) {
	c.res.Problems = append(c.res.Problems, fmt.Sprintf("%s: %s: %s", c.Name, from, fmt.Sprintf(format, args...)))
}

// index notes the address of the registry that is used in place of the default one.
func (c *collector) index(from, address string) {
	if c.extra(from, address) {
		c.replaced = true
	}
}

// extra notes the address of one more registry. It returns false if the address is none of a
// registry elsewhere: files of the system itself, and servers on its loopback.
func (c *collector) extra(from, address string) bool {
	r, err := c.registry(from, address)
	switch {
	case err != nil:
		c.problem(from, "%v", err)
		return false
	case r == nil:
		return false
	}
	c.res.Registries = append(c.res.Registries, *r)
	return true
}

// proxy notes the address of a proxy.
func (c *collector) proxy(from, address string) {
	if address != "" && !strings.Contains(address, "://") {
		address = "http://" + address
	}
	if r, err := c.registry(from, address); err == nil && r != nil {
		c.res.Proxies = append(c.res.Proxies, *r)
	}
}

var errNoHost = errors.New("an address has no host that could be named in a rule")

// registry takes an address apart. It returns nil if it leads to no other host.
func (c *collector) registry(from, address string) (*Registry, error) {
	scheme, _, isURL := strings.Cut(address, "://")
	scheme = scheme[strings.LastIndexByte(scheme, '+')+1:] // sparse+https, mirror+http
	if !isURL || scheme != "http" && scheme != "https" {
		return nil, nil
	}
	u, err := url.Parse(address[strings.Index(address, scheme+"://"):])
	if err != nil {
		return nil, errNoHost // the error has the address in it, and that may have a password
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return nil, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.IsLoopback() || addr.IsUnspecified() {
			return nil, nil
		}
		host = addr.Unmap().WithZone("").String()
	}
	r := &Registry{Tool: c.tool, From: c.Name + ": " + from, Host: host, Private: true, address: u}
	u.Scheme, u.User, u.RawQuery, u.Fragment = scheme, nil, "", ""
	if p := u.Port(); p != "" && !(scheme == "http" && p == "80" || scheme == "https" && p == "443") {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, errNoHost
		}
		r.Port = uint16(n)
	}
	if (api.NetworkRule{Address: host}).Valid("address") != nil || strings.Contains(host, "*") {
		return nil, errNoHost
	}
	return r, nil
}

// read returns the text of a file of the system, "" if there is none. A path that begins with ~/ is
// in the home directory.
func (c *collector) read(path string) string {
	name := strings.TrimPrefix(path, "/")
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if c.Home == "" {
			return ""
		}
		name = strings.Trim(c.Home, "/") + "/" + rest
	}
	if !fs.ValidPath(name) {
		return ""
	}
	text, err := readFile(c.Files, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.problem("/"+name, "%v", err)
	}
	return text
}

// readFile returns the text of a regular file. Anything else is as no file: /dev/null stands for no
// configuration, and a pipe would never end.
func readFile(files fs.FS, name string) (string, error) {
	info, err := fs.Stat(files, name)
	if err != nil || !info.Mode().IsRegular() {
		return "", err
	}
	text, err := readUpTo(files, name, maxFile)
	return string(text), err
}

// readUpTo returns the contents of a file that must have no more than limit bytes.
func readUpTo(files fs.FS, name string, limit int64) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return data, err
}

// glob returns the paths that match, sorted.
func (c *collector) glob(pattern string) []string {
	paths, err := fs.Glob(c.Files, pattern)
	if err != nil {
		return nil // a pattern of this package is well-formed
	}
	return paths
}

// ask returns what a tool says on its two outputs, nothing if it cannot be asked.
func (c *collector) ask(ctx context.Context, argv ...string) (stdout, stderr string) {
	if c.Ask == nil {
		return "", ""
	}
	stdout, stderr, err := c.Ask(ctx, argv...)
	if err != nil {
		c.problem(strings.Join(argv, " "), "%v", err)
		return "", ""
	}
	return strings.TrimSpace(stdout), stderr
}

// String returns the registry with what names it.
func (r Registry) String() string {
	host := r.Host
	if r.Port != 0 {
		host = net.JoinHostPort(r.Host, strconv.Itoa(int(r.Port)))
	}
	return r.Tool + ": " + host + " (" + r.From + ")"
}

// Address returns the address that the system has for the registry, without passwords. It is "" for
// hosts that another registry named.
func (r Registry) Address() string { return r.address.String() }
