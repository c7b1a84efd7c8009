package install

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/registries"
	"ramet.dev/ramet/test/harness"
)

// TestRegistries has each tool fetch packages from the registry of this machine, and uses them. The
// sandbox is forked while the tool is connected. In the child the connection is reset, and another one
// is possible at once: what the tool was told is told it once more, and succeeds.
func TestRegistries(t *testing.T) {
	harness.OnlyOnce(t, "what tools do does not depend on who starts sandboxes")
	n, whole := newNode(t), t
	for _, c := range []struct {
		tool  string
		bring bringer
		files []file
		// before comes before the sandbox is forked in the middle of fetch. %s is the address of
		// the registry in both.
		before, fetch, use, want string
	}{
		{"apt", aptSources, nil, "apt-get -q -o Acquire::Languages=none update", "apt-get -q -y install --no-install-recommends jq",
			`echo '{"a": [1, 2]}' | jq -c '.a'`, "[1,2]\n"},
		{"pip", alreadyThere, nil, "", "pip install -q --no-input --disable-pip-version-check --no-cache-dir --no-compile --index-url %s attrs",
			"python3 -c 'import attr; print(attr.make_class(\"C\", [\"a\"])(1).a)'", "1\n"},
		{"npm", bringNPM, []file{{"npm/package.json", `{"name":"project","version":"1.0.0","dependencies":{"semver":"7.7.2","chalk":"4.1.2"}}`}},
			"cd /root/npm && npm install --package-lock-only --no-audit --no-fund --no-update-notifier --cache /tmp/other --registry %s", "cd /root/npm && npm ci --no-audit --no-fund --no-update-notifier --fetch-retry-mintimeout 100 --registry %s",
			"cd /root/npm && node -e 'require(\"chalk\"); console.log(require(\"semver\").inc(\"1.2.3\", \"minor\"))'", "1.3.0\n"},
		{"go", bringGo, []file{
			{"module/go.mod", "module example.org/project\n\ngo 1.21\n\nrequire github.com/google/uuid v1.6.0\n\nrequire golang.org/x/exp v0.0.0-20240719175910-8a7402abbf56\n"},
			{"module/project.go", "package project\n\nimport \"golang.org/x/exp/constraints\"\n\ntype Pair[K constraints.Ordered] struct{ a, b K }\n"},
		}, "", "cd /root/module && GOPROXY=%s GOTOOLCHAIN=local go mod download all",
			"cd /root/module && export GOTOOLCHAIN=local GOFLAGS=-mod=mod GOPROXY=off && go mod verify && go build ./...", "all modules verified\n"},
		{"cargo", bringCargo, []file{
			{"cargo/Cargo.toml", "[package]\nname = \"project\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\nmemchr = { version = \"2\", default-features = false }\n"},
			{"cargo/src/lib.rs", "#![no_std]\npub fn length() -> usize { itoa::Buffer::new().format(7u8).len() }\n"},
		}, "", "cd /root/cargo && cargo fetch -q", "cd /root/cargo && cargo check -q --offline && cargo tree -q --offline --prefix none | cut -d' ' -f1 | sort | tr '\\n' ' '", "itoa memchr project "},
	} {
		t.Run(c.tool, func(t *testing.T) {
			address := registry(t, c.tool)
			n.T = t
			defer func() { n.T = whole }()
			create(n, c.tool, api.NetworkPolicy{})
			defer n.Destroy(c.tool)
			c.bring(n, c.tool)
			project(n, c.tool, c.files)
			if c.before != "" {
				shell(n, c.tool, strings.ReplaceAll(c.before, "%s", address))
			}
			mustWork := func(ref string) {
				t.Helper()
				if got := shell(n, ref, c.use); got != c.want {
					t.Errorf("in %s what was fetched says %q, not %q", ref, got, c.want)
				}
			}

			// A slow network keeps the tool connected until the sandbox is forked.
			setRate(n, c.tool, 1)
			before := lastFlow(n, c.tool)
			fetch := strings.ReplaceAll(c.fetch, "%s", address)
			pid, parent := start(n, c.tool, fetch)
			awaitConnection(n, c.tool, before)
			child := n.Fork(c.tool, 1)[0].ID
			defer n.Destroy(child)
			setRate(n, c.tool, 0)
			setRate(n, child, 0)

			follower := n.Follow(child, pid, 0)
			if exit := parent.Exit(); exit.ExitCode != 0 {
				out, _ := parent.Text()
				t.Fatalf("in the parent it ends with %+v: %s", exit, harness.LastOf(out))
			}
			mustWork(c.tool)
			exit := follower.Exit()
			said, _ := follower.Text()
			if low := strings.ToLower(said); exit.ExitCode != 0 && !strings.Contains(low, "reset") || strings.Contains(low, "refused") {
				t.Errorf("in the child it ends with %+v: %s", exit, harness.LastOf(said))
			}
			shell(n, child, fetch)
			mustWork(child)
		})
	}
}

// TestFollow has pip fetch a package where only its index is known: the index is asked where the files are.
func TestFollow(t *testing.T) {
	harness.OnlyOnce(t, "an index says the same to each user")
	registry(t, "pip")
	found := &registries.Result{}
	for _, r := range configured(t) {
		if r.Tool == "pip" {
			found.Registries = append(found.Registries, r)
			break
		}
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	registries.Follow(t.Context(), client, found)
	if len(found.Problems) != 0 {
		t.Fatalf("the index says nothing: %q", found.Problems)
	}
	n := newNode(t)
	if _, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{
		Image: "databases", Name: "base", Network: &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: found.Rules()}},
	}); err != nil {
		t.Fatal(err)
	}
	shell(n, "base", "pip download -q --no-input --disable-pip-version-check --no-cache-dir --no-deps -d /root/lib --index-url "+found.Registries[0].Address()+" idna && test -s /root/lib/idna-*.whl")
}

// setRate replaces the network of a sandbox by one with a rate, in megabits per second.
func setRate(n *harness.Node, ref string, rate int) {
	n.T.Helper()
	policy := api.NetworkPolicy{Limits: api.NetworkLimits{RateMbit: rate}}
	if _, err := n.Machine.SetNetwork(harness.AsOwner, ref, api.NetworkRequest{Profile: "host-registries", NetworkPolicy: policy}); err != nil {
		n.T.Fatalf("set the network of %s: %v", ref, err)
	}
}

// lastFlow returns the highest number of a flow of a sandbox.
func lastFlow(n *harness.Node, ref string) (last uint64) {
	n.T.Helper()
	err := n.Machine.NetworkLog(harness.AsOwner, ref, false, func() {}, func(e api.NetworkLogEntry) error {
		last = max(last, e.Flow)
		return nil
	})
	if err != nil {
		n.T.Fatalf("read the log: %v", err)
	}
	return last
}

// awaitConnection waits until a sandbox has a connection after a flow.
func awaitConnection(n *harness.Node, ref string, after uint64) {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(harness.AsOwner, harness.Timeout)
	defer cancel()
	found := errors.New("there is a connection")
	err := n.Machine.NetworkLog(ctx, ref, true, func() {}, func(e api.NetworkLogEntry) error {
		if e.Flow > after && e.Protocol == "tcp" && e.Verdict == api.NetworkAllowed && e.DurationMS == 0 {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		n.T.Fatalf("wait for a connection: %v", err)
	}
}
