package egress

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"ramet.dev/ramet/api"
)

// Network is what a sandbox may reach, as clients of E2B say it.
type Network struct {
	Public   *bool             `json:"allowPublicTraffic"`
	Allow    []string          `json:"allowOut"`
	Deny     []string          `json:"denyOut"`
	Internet *bool             `json:"allow_internet_access"` // in a change
	Rules    map[string][]rule `json:"rules"`
	Proxy    any               `json:"egressProxy"`
	Mask     string            `json:"maskRequestHost"`
	DNS      []string          `json:"dnsServers"`
	TLSPorts []int             `json:"httpsPorts"`
}

type rule struct {
	Transform *struct {
		Headers map[string]string `json:"headers"`
	} `json:"transform"`
}

// maskPort stands for the port in the mask of a host.
const maskPort = "${PORT}"

// Mask returns the host that the server at a port of a sandbox sees in requests from outside.
func Mask(mask string, port int) string {
	return strings.ReplaceAll(mask, maskPort, strconv.Itoa(port))
}

// everything are the ranges of all addresses.
var everything = []string{"0.0.0.0/0", "::/0"}

// Request returns the network of a sandbox. Unless something else is said all public addresses may be
// reached, as with E2B; a denial of everything leaves what is allowed by name.
func (n *Network) Request(internet *bool) (*api.NetworkRequest, error) {
	out := &api.NetworkRequest{Profile: "open"}
	if internet != nil && !*internet {
		out.Profile = "none"
	}
	if n == nil {
		return Closed(out), nil
	}
	switch {
	case n.Proxy != nil:
		return nil, api.Errorf(api.CodeUnsupported, "egressProxy: a sandbox has no proxy of its own; the daemon takes HTTPS_PROXY of its environment")
	case n.Mask != "" && !httpguts.ValidHostHeader(Mask(n.Mask, 1)):
		return nil, api.Invalid("maskRequestHost", "%q is not a host, such as example.org or localhost:%s", n.Mask, maskPort)
	case len(n.DNS) > 0:
		return nil, api.Errorf(api.CodeUnsupported, "dnsServers: names are looked up by the gateway of the daemon, with the servers of its machine")
	case len(n.TLSPorts) > 0:
		return nil, api.Errorf(api.CodeUnsupported, "httpsPorts: TLS is known by itself at all ports")
	}
	if n.Internet != nil && !*n.Internet {
		out.Profile = "none"
	}
	for _, text := range n.Deny {
		if slices.Contains(everything, text) {
			out.Profile = "none"
			continue
		}
		r, err := api.ParseNetworkRule("denyOut", text)
		if err != nil {
			return nil, err
		}
		out.NetworkPolicy.Deny = append(out.NetworkPolicy.Deny, r)
	}
	for _, text := range n.Allow {
		if slices.Contains(everything, text) {
			out.Profile = "open"
			continue
		}
		r, err := api.ParseNetworkRule("allowOut", text)
		if err != nil {
			return nil, err
		}
		out.NetworkPolicy.Allow = append(out.NetworkPolicy.Allow, r)
	}
	if err := n.treat(out); err != nil {
		return nil, err
	}
	return Closed(out), nil
}

// treat adds the headers that are put into requests. A rule by itself allows nothing: it is left out if
// its host is not allowed otherwise.
func (n *Network) treat(out *api.NetworkRequest) error {
	for host, list := range n.Rules {
		var t api.NetworkTreatment
		for _, r := range list {
			if r.Transform == nil {
				continue
			}
			for name, value := range r.Transform.Headers {
				h, err := inserted(name, value)
				if err != nil {
					return err
				}
				t.Headers = append(t.Headers, h)
			}
		}
		if len(t.Headers) == 0 || !allowed(out, host) {
			continue
		}
		slices.SortFunc(t.Headers, func(a, b api.NetworkSecret) int { return strings.Compare(a.Header, b.Header) })
		if out.Rules == nil {
			out.Rules = map[string]api.NetworkTreatment{}
		}
		out.Rules[host] = t
	}
	return nil
}

// allowed reports whether a network reaches a host, of which a rule is.
func allowed(n *api.NetworkRequest, host string) bool {
	is := func(r api.NetworkRule) bool {
		below, wild := strings.CutPrefix(r.Address, "*")
		return strings.EqualFold(r.Address, host) || wild && strings.HasSuffix(strings.ToLower(host), strings.ToLower(below))
	}
	if slices.ContainsFunc(n.NetworkPolicy.Deny, func(r api.NetworkRule) bool { return strings.EqualFold(r.Address, host) }) {
		return false
	}
	return n.Profile == "open" || slices.ContainsFunc(n.NetworkPolicy.Allow, is)
}

// placeholder is how clients name a secret in a header.
var placeholder = regexp.MustCompile(`\$\{e2b\.secrets\.([^{}]*)\}`)

// inserted returns a header as a document of Ramet has it.
func inserted(name, value string) (api.NetworkSecret, error) {
	if rest := placeholder.ReplaceAllString(value, ""); strings.Contains(rest, "${") {
		return api.NetworkSecret{}, api.Errorf(api.CodeUnsupported, "rules: header %s names something else than a secret as ${e2b.secrets.NAME}", name)
	}
	h := api.NetworkSecret{Header: name, Value: placeholder.ReplaceAllString(value, "$${$1}")}
	h.Plain = len(h.Names()) == 0 // a secret goes over TLS only
	return h, nil
}

// registries are those that the host is set up with, which need not be public.
var registries = api.NetworkRule{Profile: "host-registries"}

// Closed returns no network in place of one that reaches nothing. One that is open reaches registries, too.
func Closed(n *api.NetworkRequest) *api.NetworkRequest {
	if n.Profile == "none" && len(n.NetworkPolicy.Allow) == 0 {
		return &api.NetworkRequest{Profile: "none"}
	}
	if n.Profile == "open" {
		n.NetworkPolicy.Allow = append(n.NetworkPolicy.Allow, registries)
	}
	return n
}
