package registries

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"ramet.dev/ramet/api"
)

// system returns one with the given files.
func system(files map[string]string, env map[string]string) *System {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return &System{Name: "image", Files: m, Home: "root", Env: env}
}

// found returns the registries of a result as text, sorted.
func found(res *Result) []string {
	var out []string
	for _, r := range res.Registries {
		out = append(out, r.String())
	}
	slices.Sort(out)
	return out
}

// jar returns an archive with the project that Maven's projects descend from.
func jar(t testing.TB, project string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(superProject)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(project)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const superPOM = `<project><repositories><repository><id>central</id><url>https://maven.example.org/maven2</url></repository></repositories>
<pluginRepositories><pluginRepository><url>https://maven.example.org/maven2</url></pluginRepository></pluginRepositories></project>`

func TestDerive(t *testing.T) {
	for name, c := range map[string]struct {
		files, env map[string]string
		want       []string
		proxies    []string
	}{
		"nothing": {},
		"apt, one line": {files: map[string]string{
			"etc/apt/sources.list": "# deb http://no.example.org/x y\ndeb [arch=amd64 signed-by=/k] http://deb.example.org/debian stable main # x\n" +
				"deb-src\thttps://user:secret@deb.example.org:8443/debian stable main\ndeb http://flat.example.org/ ./\ndeb cdrom:[x]/ y z\ndeb file:/srv/x y\ndeb\nrpm http://no.example.org/ x\n",
			"etc/apt/sources.list.d/more.list": "deb mirror+https://mirrors.example.org/list stable main\n",
			"etc/apt/sources.list.d/old.save":  "deb http://no.example.org/x y\n",
			"etc/apt/apt.conf.d/proxy":         "Acquire::http::Proxy \"http://proxy.example.org:3128/\";\n# Proxy \"http://no.example.org\"\nAcquire::http::Proxy::deb.example.org \"DIRECT\";\n",
		}, want: []string{
			"apt: deb.example.org (image: /etc/apt/sources.list)", "apt: deb.example.org:8443 (image: /etc/apt/sources.list)",
			"apt: flat.example.org (image: /etc/apt/sources.list)", "apt: mirrors.example.org (image: /etc/apt/sources.list.d/more.list)",
		}, proxies: []string{"apt: proxy.example.org:3128 (image: /etc/apt/apt.conf.d/proxy)"}},
		"apt, stanzas": {files: map[string]string{
			"etc/apt/sources.list.d/debian.sources": "Types: deb\nURIs: http://deb.example.org/debian\n  https://second.example.org/debian\nSuites: stable\n\n# x\nEnabled: no\nURIs: http://no.example.org/\n",
		}, want: []string{
			"apt: deb.example.org (image: /etc/apt/sources.list.d/debian.sources)", "apt: second.example.org (image: /etc/apt/sources.list.d/debian.sources)",
		}},
		"pip": {files: map[string]string{
			"etc/pip.conf":               "[global]\nindex-url = https://user:secret@pypi.example.org/simple?x=secret\nextra-index-url =\n    https://a.example.org/simple\n    https://b.example.org:8443/simple\nfind-links = /opt/wheels\n",
			"root/.config/pip/pip.conf":  "[install]\nFIND_LINKS: https://links.example.org/x\nproxy = proxy.example.org:3128\n; index-url = https://no.example.org\n",
			"usr/lib/python3.11/a":       "",
			"home/x/.pip/pip.conf":       "[global]\nindex-url = https://no.example.org\n",
			"etc/uv/uv.toml":             "index-url = \"https://uv.example.org/simple\"\n[[index]]\nurl = \"https://uvindex.example.org/simple\"\ndefault = true\n[pip]\nextra-index-url = [\"https://uvpip.example.org\"]\n",
			"root/.config/uv/uv.toml":    "not toml",
			"usr/lib/python3/empty.conf": "",
		}, env: map[string]string{"PIP_EXTRA_INDEX_URL": "https://env.example.org/simple", "UV_INDEX": "name=https://uvenv.example.org/s", "HTTPS_PROXY": "http://u:p@proxy.example.org:3128"}, want: []string{
			"pip: a.example.org (image: /etc/pip.conf)", "pip: b.example.org:8443 (image: /etc/pip.conf)", "pip: env.example.org (image: PIP_EXTRA_INDEX_URL)",
			"pip: links.example.org (image: ~/.config/pip/pip.conf)", "pip: pypi.example.org (image: /etc/pip.conf)", "pip: uv.example.org (image: /etc/uv/uv.toml)",
			"pip: uvenv.example.org (image: UV_INDEX)", "pip: uvindex.example.org (image: /etc/uv/uv.toml)", "pip: uvpip.example.org (image: /etc/uv/uv.toml)",
		}, proxies: []string{"environment: proxy.example.org:3128 (image: HTTPS_PROXY)", "pip: proxy.example.org:3128 (image: ~/.config/pip/pip.conf)"}},
		"pip's default": {files: map[string]string{
			"usr/lib/python3/dist-packages/pip/_internal/models/index.py": "class PackageIndex:\n    pass\n\nPyPI = PackageIndex(\"https://pypi.example.org/\", file_storage_domain=\"files.example.net\")\nTestPyPI = PackageIndex(\n    \"https://test.example.org/\", file_storage_domain=\"test-files.example.net\"\n)\n",
		}, want: []string{
			"pip: files.example.net (image: /usr/lib/python3/dist-packages/pip/_internal/models/index.py)", "pip: pypi.example.org (image: /usr/lib/python3/dist-packages/pip/_internal/models/index.py)",
		}},
		"npm": {files: map[string]string{
			"root/.npmrc": "registry=https://${NPM_HOST}/npm/\n@scope:registry = https://scope.example.org\n//npm.example.org/npm/:_authToken=https://secret.example.org\n; registry=https://no.example.org\nproxy = http://proxy.example.org:3128\n",
			"usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js": "define('registry', {\n  default: 'https://no.example.org/',\n",
		}, env: map[string]string{"NPM_HOST": "npm.example.org", "npm_config_registry": "https://env.example.org"}, want: []string{
			"npm: env.example.org (image: npm_config_registry)", "npm: npm.example.org (image: ~/.npmrc)", "npm: scope.example.org (image: ~/.npmrc)",
		}, proxies: []string{"npm: proxy.example.org:3128 (image: ~/.npmrc)"}},
		"npm's default": {files: map[string]string{
			"usr/local/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js": "  registry: new Definition('registry', {\n    default: 'https://npm.example.org/',\n    type: url,\n",
		}, want: []string{"npm: npm.example.org (image: /usr/local/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js)"}},
		"cargo": {files: map[string]string{
			"usr/local/cargo/config.toml": "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+https://cargo.example.org/index/\"\n[registries.ours]\nindex = \"https://git.example.org/index\"\n[http]\nproxy = \"proxy.example.org:3128\"\n",
			"root/.cargo/config":          "x = [",
		}, env: map[string]string{"CARGO_REGISTRIES_THEIRS_INDEX": "sparse+https://theirs.example.org/"}, want: []string{
			"cargo: cargo.example.org (image: /usr/local/cargo/config.toml)", "cargo: git.example.org (image: /usr/local/cargo/config.toml)", "cargo: theirs.example.org (image: CARGO_REGISTRIES_THEIRS_INDEX)",
		}, proxies: []string{"cargo: proxy.example.org:3128 (image: /usr/local/cargo/config.toml)"}},
		"cargo's default": {files: map[string]string{"root/.cargo/registry/index/index.example.org-1949cf8c6b5b557f/config.json": "{}"},
			want: []string{"cargo: index.example.org (image: /root/.cargo/registry/index/index.example.org-1949cf8c6b5b557f)"}},
		"go": {files: map[string]string{
			"root/.config/go/env":  "GOPROXY=https://goproxy.example.org|https://second.example.org,direct\n",
			"usr/local/go/go.env":  "# x\nGOPROXY=https://no.example.org,direct\nGOSUMDB=sum.example.org\n",
			"usr/lib/go-1.19/x.go": "",
		}, want: []string{
			"go: goproxy.example.org (image: ~/.config/go/env)", "go: second.example.org (image: ~/.config/go/env)", "go: sum.example.org (image: /usr/local/go/go.env)",
		}},
		"go by environment": {env: map[string]string{"GOPROXY": "off", "GOSUMDB": "sum.example.org+key https://sumdb.example.org/x"}, want: []string{"go: sumdb.example.org (image: GOSUMDB)"}},
		"maven": {files: map[string]string{
			"root/.m2/settings.xml": `<settings><mirrors><mirror><mirrorOf>*</mirrorOf><url>https://${env.MIRROR}/m2</url></mirror></mirrors>
<profiles><profile><repositories><repository><url>https://profile.example.org/x</url></repository></repositories></profile></profiles>
<proxies><proxy><host>proxy.example.org</host><port>3128</port></proxy></proxies></settings>`,
			"etc/maven/settings.xml":                      `<settings><mirrors><mirror><mirrorOf>external:http:*</mirrorOf><url>http://0.0.0.0/</url><blocked>true</blocked></mirror></mirrors></settings>`,
			"usr/share/maven/lib/maven-model-builder.jar": jar(t, superPOM),
		}, env: map[string]string{"MIRROR": "mirror.example.org"}, want: []string{"maven: mirror.example.org (image: ~/.m2/settings.xml)", "maven: profile.example.org (image: ~/.m2/settings.xml)"},
			proxies: []string{"maven: proxy.example.org:3128 (image: ~/.m2/settings.xml)"}},
		"maven's default": {files: map[string]string{
			"etc/maven/settings.xml":                            `<settings><mirrors><mirror><mirrorOf>external:http:*</mirrorOf><url>http://0.0.0.0/</url><blocked>true</blocked></mirror></mirrors></settings>`,
			"usr/share/maven/lib/maven-model-builder-3.9.6.jar": jar(t, superPOM),
		}, want: []string{
			"maven: maven.example.org (image: /usr/share/maven/lib/maven-model-builder-3.9.6.jar)", "maven: maven.example.org (image: /usr/share/maven/lib/maven-model-builder-3.9.6.jar)",
		}},
		"addresses that are not taken": {files: map[string]string{
			"etc/pip.conf": "[global]\nindex-url = http://localhost:3141/simple\nextra-index-url = http://127.0.0.1/ http://[::1]/ ftp://f.example.org/ file:///x http://x.localhost/ not-an-address\n",
		}},
		"IP addresses": {files: map[string]string{"etc/pip.conf": "[global]\nindex-url = http://10.1.2.3:3141/simple\nextra-index-url = https://[2001:db8::1]/simple\n"}, want: []string{
			"pip: 10.1.2.3:3141 (image: /etc/pip.conf)", "pip: 2001:db8::1 (image: /etc/pip.conf)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			res := Derive(t.Context(), system(c.files, c.env))
			if got := found(res); !slices.Equal(got, c.want) {
				t.Errorf("registries are\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			var proxies []string
			for _, p := range res.Proxies {
				proxies = append(proxies, p.String())
			}
			slices.Sort(proxies)
			if !slices.Equal(proxies, c.proxies) {
				t.Errorf("proxies are %q, not %q", proxies, c.proxies)
			}
			for _, text := range append(res.Problems, append(found(res), proxies...)...) {
				if strings.Contains(text, "secret") || strings.Contains(text, "u:p") {
					t.Errorf("%q has a password in it", text)
				}
			}
			doc := api.NetworkPolicy{Allow: res.Rules()}
			if err := doc.Valid(); err != nil {
				t.Errorf("the rules are no document: %v", err)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	s := system(map[string]string{
		"etc/pip.conf":          "index-url = https://a:secret@bad.example.org:99999/",
		"root/.cargo/config":    "x = [",
		"root/.m2/settings.xml": "<a",
		"etc/uv/uv.toml":        "index-url = 5",
		"etc/npmrc":             strings.Repeat("#", maxFile+1),
		"etc/apt/sources.list":  "deb http://*.example.org/ x",
		"usr/share/maven/lib/maven-model-builder.jar": "no archive",
	}, nil)
	s.Ask = func(_ context.Context, argv ...string) (string, string, error) {
		return "", "", errors.New("no answer")
	}
	res := Derive(t.Context(), s)
	if len(res.Registries) != 0 {
		t.Errorf("registries are %q", found(res))
	}
	text := strings.Join(res.Problems, "\n")
	for _, want := range []string{
		"/etc/pip.conf: an address has no host", "~/.cargo/config: it is no TOML", "~/.m2/settings.xml: it is no XML", "/etc/uv/uv.toml: it is no TOML", "/etc/npmrc: it has more than",
		"/etc/apt/sources.list: an address has no host", "maven-model-builder.jar: it is no archive", "pip install --help: no answer", "npm config get registry: no answer", "go env GOPROXY: no answer",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no problem is %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret") {
		t.Errorf("a problem has a password in it:\n%s", text)
	}
}

// TestOtherFilesAreNone has a pipe, which nobody writes to, and a device in place of files.
func TestOtherFilesAreNone(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/apt/sources.list"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "etc/pip.conf"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(root, "etc/npmrc")); err != nil {
		t.Fatal(err)
	}
	res := Derive(t.Context(), &System{Name: "image", Files: os.DirFS(root)})
	if len(res.Registries) > 0 || len(res.Problems) > 0 {
		t.Errorf("registries are %q, problems %q", found(res), res.Problems)
	}
}

func TestRules(t *testing.T) {
	res := Derive(t.Context(), system(map[string]string{
		"etc/pip.conf": "index-url = https://b.example.org/simple\nextra-index-url = http://b.example.org/x https://a.example.org:8443/ http://10.1.2.3/\n",
	}, nil))
	var got []string
	for _, r := range res.Rules() {
		got = append(got, r.String())
	}
	want := []string{`{"address":"10.1.2.3","ports":[443,80],"private":true}`, `{"address":"a.example.org","ports":[8443],"private":true}`, `{"address":"b.example.org","private":true}`}
	if !slices.Equal(got, want) {
		t.Errorf("rules are %q", got)
	}
}

// TestHostAsksTools lets programs answer that say what the real ones do.
func TestHostAsksTools(t *testing.T) {
	bin := t.TempDir()
	for name, script := range map[string]string{
		"pip":   "cat <<'E'\n  -i, --index-url <url>       Base URL of the Python Package Index (default\n                              https://pypi.example.org/simple). This should point\n  --extra-index-url <url>     more (default https://no.example.org)\nE",
		"npm":   "test \"$*\" = 'config get registry' && echo npm warn >&2 && echo https://npm.example.org/",
		"go":    "test \"$2\" = GOPROXY && echo https://go.example.org,direct || echo sum.example.org",
		"cargo": "echo \"cache missing cache_path=/x/registry/index/cargo.example.org-1949cf8c6b5b557f/.cache\" >&2; exit 101",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	host := Host(t.TempDir(), []string{"PATH=" + bin + ":/usr/bin:/bin"})
	host.Files = fstest.MapFS{}
	res := Derive(t.Context(), host)
	want := []string{"cargo: cargo.example.org (host: cargo)", "go: go.example.org (host: go env)", "go: sum.example.org (host: go env)", "npm: npm.example.org (host: npm)", "pip: pypi.example.org (host: pip)"}
	if got := found(res); !slices.Equal(got, want) || len(res.Problems) > 0 {
		t.Errorf("registries are %q, problems %q", got, res.Problems)
	}
}

func TestHostToolsMayBeMissingOrSilent(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte("#!/bin/sh\nexec sleep 100\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	host := Host("/root", []string{"PATH=/usr/bin:/bin"})
	host.Files = fstest.MapFS{}
	res := Derive(ctx, host)
	if len(res.Registries) != 0 || !slices.ContainsFunc(res.Problems, func(p string) bool { return strings.HasPrefix(p, "host: npm config get registry: no answer") }) {
		t.Errorf("registries are %q, problems %q", found(res), res.Problems)
	}
}

// TestThisHost reads the configuration of the machine that the test runs on.
func TestThisHost(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip(err)
	}
	res := Derive(t.Context(), Host(home, os.Environ()))
	tools := map[string]int{}
	for _, r := range res.Registries {
		tools[r.Tool]++
	}
	t.Logf("registries by tool: %v; %d proxies, %d problems", tools, len(res.Proxies), len(res.Problems))
	if tools["go"] == 0 {
		t.Error("go, which this test was built with, has no registry")
	}
	if err := (&api.NetworkPolicy{Allow: res.Rules()}).Valid(); err != nil {
		t.Errorf("the rules are no document: %v", err)
	}
}
