package e2b

import (
	"net/http"
	"slices"

	"ramet.dev/ramet/api"
)

// network is what a sandbox may reach, as clients say it.
type network struct {
	Public   *bool             `json:"allowPublicTraffic"`
	Allow    []string          `json:"allowOut"`
	Deny     []string          `json:"denyOut"`
	Internet *bool             `json:"allow_internet_access"` // in a change
	Rules    map[string][]rule `json:"rules"`
	Proxy    any               `json:"egressProxy"`
	Mask     string            `json:"maskRequestHost"`
}

type rule struct {
	Transform *struct {
		Headers map[string]string `json:"headers"`
	} `json:"transform"`
}

// everything are the ranges of all addresses.
var everything = []string{"0.0.0.0/0", "::/0"}

// request returns the network of a sandbox. Unless something else is said all public addresses may be
// reached, as with E2B; a denial of everything leaves what is allowed by name.
func (n *network) request(internet *bool) (*api.NetworkRequest, error) {
	out := &api.NetworkRequest{Profile: "open"}
	if internet != nil && !*internet {
		out.Profile = "none"
	}
	if n == nil {
		return closed(out), nil
	}
	switch {
	case n.Proxy != nil:
		return nil, api.Errorf(api.CodeUnsupported, "egressProxy: a sandbox has no proxy of its own; the daemon takes HTTPS_PROXY of its environment")
	case n.Mask != "":
		return nil, api.Errorf(api.CodeUnsupported, "maskRequestHost: servers see the host that was asked for")
	case len(n.Rules) > 0:
		return nil, api.Errorf(api.CodeUnsupported, "rules: headers with secrets are put in by 'ramet secret' and a network of Ramet, which keep them out of requests")
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
	return closed(out), nil
}

// registries are those that the host is set up with, which need not be public.
var registries = api.NetworkRule{Profile: "host-registries"}

// closed returns no network in place of one that reaches nothing. One that is open reaches registries, too.
func closed(n *api.NetworkRequest) *api.NetworkRequest {
	if n.Profile == "none" && len(n.NetworkPolicy.Allow) == 0 {
		return &api.NetworkRequest{Profile: "none"}
	}
	if n.Profile == "open" {
		n.NetworkPolicy.Allow = append(n.NetworkPolicy.Allow, registries)
	}
	return n
}

// setNetwork replaces what a sandbox may reach.
func (s *Server) setNetwork(w http.ResponseWriter, r *http.Request) error {
	var in network
	if err := read(r, &in); err != nil {
		return err
	}
	req, err := in.request(nil)
	if err != nil {
		return err
	}
	if _, err := s.svc.SetNetwork(r.Context(), inner(r.PathValue("id")), *req); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
