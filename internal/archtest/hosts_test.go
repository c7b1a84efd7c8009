package archtest

import (
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// registries returns the hosts from which this machine takes packages: they are
// the machine's business, so their names are read from its configuration
// wherever they are needed, and are not written down.
func registries(t *testing.T) []string {
	t.Helper()
	var text strings.Builder
	for _, cmd := range [][]string{{"go", "env", "GOPROXY", "GOSUMDB"}, {"npm", "config", "get", "registry"}, {"pip", "config", "list"}} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).Output(); err == nil { // else the machine does not have it
			text.Write(append(out, '\n'))
		}
	}
	lists, err := filepath.Glob("/etc/apt/sources.list.d/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(lists, "/etc/apt/sources.list") {
		if b, err := os.ReadFile(file); err == nil { // else there is none
			text.Write(append(b, '\n'))
		}
	}
	return hostsIn(text.String())
}

var webAddress = regexp.MustCompile(`https?://[^\s,|'"\]]+`)

// hostsIn returns the hosts of the addresses in text, with their ports. Those
// that are words or loopback addresses would be found everywhere.
func hostsIn(text string) []string {
	var hosts []string
	for _, address := range webAddress.FindAllString(text, -1) {
		u, err := url.Parse(address)
		if err == nil && strings.Contains(u.Hostname(), ".") && (u.Port() != "" || !strings.HasPrefix(u.Hostname(), "127.")) {
			hosts = append(hosts, u.Host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// moduleFiles name modules by their import paths, which may look like hosts.
var moduleFiles = []string{"go.mod", "go.sum"}

// mentions reports whether text names host, not only a longer name with host in
// it. Import paths of Go modules are no hosts.
func mentions(file, text, host string) bool {
	if slices.Contains(moduleFiles, path.Base(file)) || !strings.Contains(text, host) {
		return false
	}
	name := regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(host) + `($|[^\w-])`)
	for line := range strings.Lines(text) {
		if name.MatchString(line) && !(path.Ext(file) == ".go" && importLine.MatchString(line)) {
			return true
		}
	}
	return false
}

var importLine = regexp.MustCompile(`^\s*(import\s+)?([\w.]+\s+)?"[^"\s]+"\s*(//.*)?$`)

func TestNoRegistryIsNamed(t *testing.T) {
	hosts := registries(t)
	t.Logf("%d hosts are configured on this machine", len(hosts))
	for _, f := range ourFiles(t) {
		text := string(read(t, f))
		for _, h := range hosts {
			if mentions(f, text, h) {
				t.Errorf("%s names a package registry of this machine: read it from the machine's configuration", f)
			}
		}
	}
}

func TestMentions(t *testing.T) {
	hosts := hostsIn("https://proxy.example.org,direct\ndeb [signed-by=x] http://deb.example.org:8080/debian bookworm main\nhttp://mirror/x http://127.0.0.1/x\nindex-url='https://a.example/simple'")
	if want := []string{"a.example", "deb.example.org:8080", "proxy.example.org"}; !slices.Equal(hosts, want) {
		t.Fatalf("hosts are %q, not %q", hosts, want)
	}
	for _, c := range []struct {
		file, text string
		want       bool
	}{
		{"README.md", "see https://proxy.example.org/x", true},
		{"README.md", "ends with proxy.example.org.", true},
		{"x_test.go", `	url := "proxy.example.org"`, true},
		{"README.md", "https://notproxy.example.org or my-proxy.example.org", false},
		{"README.md", "proxy.example.organic", false},
		{"go.mod", "require proxy.example.org v1.0.0", false},
		{"x.go", `import m "proxy.example.org/module"`, false},
		{"x.go", `	"proxy.example.org/module" // why`, false},
	} {
		if got := mentions(c.file, c.text, "proxy.example.org"); got != c.want {
			t.Errorf("mentions(%q, %q) = %t", c.file, c.text, got)
		}
	}
}
