package client_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// Every method of networks is called once.
func TestNetworks(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	network := &api.SandboxNetwork{NetworkPolicy: api.NetworkPolicy{}.Normal()}
	var got string
	note := func(args ...any) { got = fmt.Sprintf("%+v", args) }
	c := connect(t, &apitest.Service{NetworkFuncs: apitest.NetworkFuncs{
		NetworkFunc: func(_ context.Context, ref string) (*api.SandboxNetwork, error) { note(ref); return network, nil },
		SetNetworkFunc: func(_ context.Context, ref string, req api.NetworkRequest) (*api.SandboxNetwork, error) {
			note(ref, req)
			return network, nil
		},
		TestNetworkFunc: func(_ context.Context, ref string, test api.NetworkTest) (*api.NetworkTestResult, error) {
			note(ref, test)
			return &api.NetworkTestResult{Allowed: true, Rule: "a.example.org:22"}, nil
		},
		NetworkLogFunc: func(_ context.Context, ref string, follow bool, began func(), f func(api.NetworkLogEntry) error) error {
			note(ref, follow)
			began()
			return errors.Join(f(api.NetworkLogEntry{At: at, Flow: 1}), f(api.NetworkLogEntry{At: at, Flow: 3, Lost: 2}))
		},
		NetworkProfilesFunc: func(context.Context) ([]api.NetworkProfile, error) {
			note()
			return []api.NetworkProfile{{Name: "none", Policy: &network.NetworkPolicy}}, nil
		},
	}})
	check := func(method, args string, want, result any, err error) {
		t.Helper()
		if err != nil || got != args || !reflect.DeepEqual(want, result) {
			t.Errorf("%s: the service was called with %s\nand %+v, %v came back", method, got, result, err)
		}
		got = ""
	}
	ctx := t.Context()
	n, err := c.Networks.Get(ctx, "x")
	check("Get", "[x]", network, n, err)
	req := api.NetworkRequest{Profile: "open", NetworkPolicy: api.NetworkPolicy{Deny: []api.NetworkRule{{Address: "a.example.org"}}}}
	n, err = c.Networks.Set(ctx, "x", req)
	check("Set", fmt.Sprintf("%+v", []any{"x", req}), network, n, err)
	verdict, err := c.Networks.Test(ctx, "x", api.NetworkTest{Host: "a.example.org", Port: 22})
	check("Test", "[x {Host:a.example.org Port:22 Protocol:}]", &api.NetworkTestResult{Allowed: true, Rule: "a.example.org:22"}, verdict, err)
	var decisions []api.NetworkLogEntry
	err = c.Networks.Log(ctx, "x", true, func(e api.NetworkLogEntry) error {
		decisions = append(decisions, e)
		return nil
	})
	check("Log", "[x true]", []api.NetworkLogEntry{{At: at, Flow: 1}, {At: at, Flow: 3, Lost: 2}}, decisions, err)
	profiles, err := c.Networks.Profiles(ctx)
	check("Profiles", "[]", []api.NetworkProfile{{Name: "none", Policy: &network.NetworkPolicy}}, profiles, err)
}
