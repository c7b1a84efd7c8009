package registries

import (
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// fuzzFile holds that whatever a file says, the result is a document.
func fuzzFile(f *testing.F, file string, seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		res := Derive(t.Context(), system(map[string]string{file: text}, map[string]string{"X": "x.example.org"}))
		if rules := res.Rules(); len(rules) <= api.MaxNetworkRules {
			if err := (&api.NetworkPolicy{Allow: rules}).Valid(); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range res.Registries {
			if strings.ContainsAny(r.Host, "@/ \n") || r.Host == "localhost" {
				t.Fatalf("%q is a host", r.Host)
			}
		}
	})
}

func FuzzAptSources(f *testing.F) {
	fuzzFile(f, "etc/apt/sources.list", "deb [a=b] http://u:p@deb.example.org:80/x y z\n", "deb\thttp://[::1]/ x")
}

func FuzzAptStanzas(f *testing.F) {
	fuzzFile(f, "etc/apt/sources.list.d/x.sources", "Types: deb\nURIs: http://deb.example.org/debian\n https://x\nSuites: x\n\n", "Enabled: no\nURIs: x")
}

func FuzzAptConfig(f *testing.F) {
	fuzzFile(f, "etc/apt/apt.conf", "Acquire::http::Proxy \"http://proxy.example.org:3128\";", "Acquire { http { Proxy \"https://x\"; } }")
}

func FuzzPip(f *testing.F) {
	fuzzFile(f, "etc/pip.conf", "[global]\nindex-url: https://pypi.example.org/simple\nextra-index-url =\n  https://a\n  https://b:99999/\n")
}

func FuzzUV(f *testing.F) {
	fuzzFile(f, "etc/uv/uv.toml", "index-url = \"https://uv.example.org\"\n[[index]]\nurl = \"https://i\"\ndefault = true\n[pip]\nfind-links = [\"https://x\"]")
}

func FuzzNPM(f *testing.F) {
	fuzzFile(f, "root/.npmrc", "registry=https://${X}/npm/\n@s:registry=\"https://s\"\n//h/:_authToken=t\nproxy=p:1")
}

func FuzzCargo(f *testing.F) {
	fuzzFile(f, "root/.cargo/config.toml", "[source.a]\nregistry = \"sparse+https://cargo.example.org/\"\nreplace-with = \"b\"\n[registries]\nx = { index = \"https://y\" }")
}

func FuzzGo(f *testing.F) {
	fuzzFile(f, "usr/local/go/go.env", "GOPROXY=https://go.example.org|https://b,direct\nGOSUMDB=sum.example.org+x https://y")
}

func FuzzMaven(f *testing.F) {
	fuzzFile(f, "root/.m2/settings.xml", "<settings><mirrors><mirror><mirrorOf>*</mirrorOf><url>https://${env.X}/</url></mirror></mirrors><proxies><proxy><host>h</host><port>1</port></proxy></proxies></settings>", superPOM)
}

func FuzzMavenJar(f *testing.F) {
	fuzzFile(f, "usr/share/maven/lib/maven-model-builder.jar", jar(f, superPOM))
}

func FuzzPages(f *testing.F) {
	f.Add([]byte(`<a href="https://files.example.net/x">x</a>`))
	f.Add([]byte(`{"dist":{"tarball":"https://x"},"dl":"https://y/{crate}"}`))
	f.Fuzz(func(t *testing.T, page []byte) {
		res := &Result{}
		for _, read := range []func([]byte) []string{pipLinks, npmTarball, cargoDownloads} {
			res.add(Registry{Tool: "x", Host: "index.example.org"}, read(page))
		}
		if err := (&api.NetworkPolicy{Allow: res.Rules()}).Valid(); err != nil && len(res.Registries) <= api.MaxNetworkRules {
			t.Fatal(err)
		}
	})
}
