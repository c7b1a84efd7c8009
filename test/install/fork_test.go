package install

import (
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// patience is how long tools wait for bytes, in seconds: longer than any test.
const patience = "600"

// TestForkInAPackage forks in the middle of a package: the tool in the parent gets the rest of it, the
// one in the child ends or begins again while that is still held back, and what it is told to do once
// more it does.
func TestForkInAPackage(t *testing.T) {
	n, whole := newNode(t), t
	for _, c := range []struct {
		tool  string
		bring bringer
		large bool // what is brought
		offer func(testing.TB, *depot) []file
		// fetch has %s in place of the address, and payload is where the package ends up.
		fetch, payload string
	}{
		{"apt", alreadyThere, false, func(t testing.TB, d *depot) []file {
			offerDeb(t, d)
			return []file{{"apt/list", "deb [trusted=yes] " + d.address + " ./\n"}}
		}, "apt-get -q -o Dir::Etc::SourceList=/root/apt/list -o Acquire::http::Timeout=" + patience + " update && apt-get -q -y -o Dir::Etc::SourceList=/root/apt/list -o Acquire::http::Timeout=" + patience + " install held", "/opt/payload"},
		{"pip", alreadyThere, false, func(t testing.TB, d *depot) []file { offerWheel(t, d); return nil },
			"pip install -q --no-input --disable-pip-version-check --no-cache-dir --no-compile --timeout " + patience + " --target /root/lib --trusted-host host.ramet.internal --index-url %s/simple held", "/root/lib/held/payload"},
		{"npm", bringNPM, true, offerTarball,
			"cd /root/npm && npm ci --no-audit --no-fund --no-update-notifier --fetch-timeout " + patience + "000 --fetch-retries 0 --registry %s", "/root/npm/node_modules/held/payload"},
		{"go", bringGo, true, offerModule,
			"cd /root/module && GOPROXY=%s GOSUMDB=off GOTOOLCHAIN=local GOMODCACHE=/root/modules go mod download", "/root/modules/example.org/held@v1.0.0/payload"},
		{"cargo", bringCargo, true, offerCrate,
			"cd /root/cargo && CARGO_HTTP_TIMEOUT=" + patience + " CARGO_HTTP_LOW_SPEED_LIMIT=0 cargo fetch", "/root/.cargo/registry/src/*/held-1.0.0/payload"},
	} {
		t.Run(c.tool, func(t *testing.T) {
			if c.large {
				harness.OnlyOnce(t, "what a tool does after a reset does not depend on who starts sandboxes")
			}
			n.T = t
			defer func() { n.T = whole }()
			d := newDepot(t)
			rule, err := api.ParseNetworkRule("allow", d.rule)
			if err != nil {
				t.Fatal(err)
			}
			create(n, c.tool, api.NetworkPolicy{Allow: []api.NetworkRule{rule}})
			defer n.Destroy(c.tool)
			c.bring(n, c.tool)
			project(n, c.tool, c.offer(t, d))
			fetch := strings.ReplaceAll(c.fetch, "%s", d.address)
			mustHave := func(ref string) {
				t.Helper()
				if got := shell(n, ref, "sha256sum "+c.payload); !strings.HasPrefix(got, digest+" ") {
					t.Errorf("%s has a package with the digest %s", ref, got)
				}
			}

			pid, parent := start(n, c.tool, fetch)
			select {
			case <-d.under:
			case <-t.Context().Done():
			}
			child := n.Fork(c.tool, 1)[0].ID
			defer n.Destroy(child)
			follower := n.Follow(child, pid, 0)
			exit := follower.Exit()
			said, _ := follower.Text()
			// What does not begin again by itself says why it failed.
			again := d.count() == 2
			if exit.ExitCode == 0 != again || !again && !strings.Contains(strings.ToLower(said), "reset") {
				t.Errorf("in the child it ends with %+v, after %d requests: %s", exit, d.count(), harness.LastOf(said))
			}
			shell(n, child, fetch)
			mustHave(child)
			asked := d.count()
			if asked < 2 {
				t.Errorf("the child has a package that was asked for once")
			}

			close(d.open)
			if exit := parent.Exit(); exit.ExitCode != 0 {
				out, _ := parent.Text()
				t.Fatalf("in the parent it ends with %+v: %s", exit, harness.LastOf(out))
			}
			mustHave(c.tool)
			if n := d.count(); n != asked {
				t.Errorf("the package was asked for %d times, not %d: the parent began again", n, asked)
			}
		})
	}
}
