package node

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"strings"
	"time"

	"ramet.dev/ramet/internal/network/host"
	"ramet.dev/ramet/internal/network/profiles"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/node/networks"
	"ramet.dev/ramet/internal/node/trust"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// gatewayGrace is how long a gateway goes on that no sandbox needs.
const gatewayGrace = time.Minute

// variable returns one of the environment, whose name programs also write in lower case.
func variable(name string) string { return cmp.Or(os.Getenv(name), os.Getenv(strings.ToLower(name))) }

// newNetworks returns the networks of the node's sandboxes.
func (m *Node) newNetworks(ctx context.Context) (*networks.Networks, error) {
	cfg := m.cfg
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // there is no configuration of the user's
	}
	var dir fs.FS
	if d := cfg.Paths.Networks(); d != "" {
		dir = os.DirFS(d)
	}
	store, err := secrets.Open(hostfs.OS, cfg.Paths.Secrets())
	if err != nil {
		return nil, err
	}
	return networks.New(ctx, networks.Config{
		Secrets: store, HeldFiles: os.DirFS(cfg.Paths.Held()),
		Sandboxes: m.sandboxes, Store: cfg.Store, Trust: m.trust, Log: cfg.Log, Max: cfg.NetworkMax, Timeout: callTimeout,
		Accounts: m.ledger,
		Profiles: profiles.New(dir, map[string]profiles.Derived{networks.HostRegistries: networks.NewRegistries(home, cfg.Log).Derive}),
		Gateway: host.Config{
			Dir: cfg.Paths.RuntimeDir(), Executable: cfg.Gateway, Build: cfg.GatewayBuild, ResolvConf: cmp.Or(cfg.ResolvConf, "/etc/resolv.conf"), Hosts: cmp.Or(cfg.Hosts, "/etc/hosts"), Log: cfg.Log, Grace: gatewayGrace,
			HeldDir: cfg.Paths.Held(), Held: cfg.Held, HTTPSProxy: variable("HTTPS_PROXY"), NoProxy: variable("NO_PROXY"), Bundle: trust.Named(cfg.HostCAs),
		},
	})
}
