package cli_test

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// fakeDocument knows the profiles open, none and git-hosts.
func fakeDocument(req *api.NetworkRequest) (*api.NetworkPolicy, error) {
	if req == nil {
		return nil, nil
	}
	profile := &api.NetworkPolicy{}
	switch req.Profile {
	case "", "none":
	case "open":
		profile.Default = api.NetworkAllow
	case "git-hosts":
		profile.Allow = []api.NetworkRule{{Profile: "git-hosts"}}
	default:
		return nil, api.NotFound("network profile", req.Profile)
	}
	doc := req.On(profile)
	if doc.Closed() {
		return nil, nil
	}
	return doc, nil
}

// fakeNetworks has a network for base, and one whose writes are held for kid.
func fakeNetworks() apitest.NetworkFuncs {
	gitHosts := api.NetworkPolicy{Default: api.NetworkDeny, Allow: []api.NetworkRule{{Address: "git.example.com", Ports: []api.PortRange{{First: 22, Last: 22}}}}}
	describe := func(p *api.NetworkPolicy) *api.SandboxNetwork {
		if p == nil {
			p = &api.NetworkPolicy{}
		}
		return &api.SandboxNetwork{NetworkPolicy: p.Normal()}
	}
	return apitest.NetworkFuncs{
		NetworkFunc: func(ctx context.Context, ref string) (*api.SandboxNetwork, error) {
			sb, err := find(ctx, ref)
			if err != nil || sb.ID == kidID {
				n := describe(nil)
				n.Hold = api.HoldWrites
				return n, err
			}
			n := describe(&api.NetworkPolicy{
				Allow: []api.NetworkRule{{Profile: "git-hosts"}, {Address: "*.files.example.org"}}, Deny: []api.NetworkRule{{Address: "telemetry.example.com"}},
				Limits: api.NetworkLimits{Connections: 64},
			})
			n.Profiles = map[string]api.NetworkPolicy{"git-hosts": gitHosts}
			n.Bounds = []api.NetworkBound{{Of: "the daemon", Policy: api.NetworkPolicy{Default: api.NetworkAllow}}}
			return n, nil
		},
		SetNetworkFunc: func(ctx context.Context, ref string, req api.NetworkRequest) (*api.SandboxNetwork, error) {
			sb, err := find(ctx, ref)
			if err != nil {
				return nil, err
			}
			p, err := fakeDocument(&req)
			if err != nil {
				return nil, err
			}
			n := describe(p)
			if sb.ID == kidID && !req.ReleaseHold {
				n.Hold = api.HoldWrites
			}
			return n, nil
		},
		TestNetworkFunc: func(_ context.Context, _ string, test api.NetworkTest) (*api.NetworkTestResult, error) {
			if test.Port == 22 || test.Protocol == "echo" {
				return &api.NetworkTestResult{Allowed: true, Rule: "profile git-hosts: " + test.Host}, nil
			}
			return &api.NetworkTestResult{Rule: "default: deny", WouldAllow: test.Host}, nil
		},
		NetworkLogFunc: func(_ context.Context, _ string, follow bool, began func(), f func(api.NetworkLogEntry) error) error {
			began()
			entries := []api.NetworkLogEntry{
				{At: created, Sandbox: baseID, Flow: 1, Name: "a.example.org", Protocol: "dns", Verdict: api.NetworkDenied, Rule: "default: deny", WouldAllow: "a.example.org"},
				{At: created, Sandbox: baseID, Flow: 2, Name: "git.example.com", Address: "192.0.2.1", Port: 22, Protocol: "tcp", Verdict: api.NetworkAllowed, Rule: "profile git-hosts: git.example.com:22"},
				{At: created.Add(time.Second), Sandbox: baseID, Flow: 2, Name: "git.example.com", Address: "192.0.2.1", Port: 22, Protocol: "tcp", Verdict: api.NetworkAllowed, Rule: "profile git-hosts: git.example.com:22", BytesIn: 2048, BytesOut: 10, DurationMS: 1000},
				{At: created, Sandbox: baseID, Flow: 3, Address: "2001:db8::1", Protocol: "echo", Verdict: api.NetworkDenied, Rule: "default: deny\x1b", Lost: 7},
				{At: created, Sandbox: baseID, Flow: 4, Name: "llm.example.com", Protocol: "http", Verdict: api.NetworkHeld, Rule: "rules.llm.example.com", Method: "POST", Path: "/v1/x", Status: 201, Secrets: []string{"KEY"}, Held: "req_1", DurationMS: 5},
			}
			if follow {
				entries = entries[1:2]
			}
			for _, e := range entries {
				if err := f(e); err != nil {
					return err
				}
			}
			return nil
		},
		NetworkProfilesFunc: func(context.Context) ([]api.NetworkProfile, error) {
			return []api.NetworkProfile{
				{Name: "git-hosts", Source: "file", Policy: &gitHosts}, {Name: "host-registries", Source: "derived", Error: "nothing is set up"},
				{Name: "mirrors", Source: "file", Policy: &api.NetworkPolicy{Allow: []api.NetworkRule{{Address: "mirror.example.org", Private: true}}}},
				{Name: "open", Source: "built-in", Policy: &api.NetworkPolicy{Default: api.NetworkAllow}},
			}, nil
		},
	}
}
