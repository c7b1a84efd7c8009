package registries

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// serve returns a client for which all hosts are h.
func serve(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestFollow(t *testing.T) {
	client := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Host + r.URL.Path {
		case "pypi.example.org/simple/pip/":
			w.Write([]byte(`<a href="https://files.example.net/a/pip-1.whl#sha256=x">pip</a> <a href="../relative">x</a> <a href='http://files.example.org:8080/b'>y</a> <a href="https://10.0.0.1/x">z</a>`))
		case "json.example.org/pip/":
			if !strings.Contains(r.Header.Get("Accept"), "vnd.pypi.simple") {
				http.Error(w, "", http.StatusNotAcceptable)
			}
			w.Write([]byte(`{"files": [{"url": "https://jsonfiles.example.net/x"}, {"url": "https://jsonfiles.example.net/y"}]}`))
		case "npm.example.org/npm/latest":
			w.Write([]byte(`{"dist": {"tarball": "https://tarballs.npm.example.org/npm.tgz"}}`))
		case "cargo.example.org/index/config.json":
			w.Write([]byte(`{"dl": "https://static.example.net/crates/{crate}/download", "api": "https://cargo.example.org"}`))
		case "moved.example.org/simple/pip/":
			http.Redirect(w, r, "http://target.example.org/simple/pip/", http.StatusFound)
		case "target.example.org/simple/pip/":
		case "broken.example.org/simple/pip/":
			http.Error(w, "", http.StatusInternalServerError)
		default:
			http.NotFound(w, r)
		}
	}))
	res := Derive(t.Context(), system(map[string]string{
		"etc/pip.conf":       "index-url = http://u:secret@pypi.example.org/simple\nextra-index-url = http://json.example.org http://moved.example.org/simple/ http://broken.example.org/simple\nfind-links = http://links.example.org/x",
		"root/.npmrc":        "registry=http://npm.example.org/",
		"root/.cargo/config": "[registries.a]\nindex = \"sparse+http://cargo.example.org/index/\"\n",
	}, nil))
	before := len(res.Registries)
	Follow(t.Context(), client, res)
	var got []string
	for _, r := range res.Registries[before:] {
		text := r.String()
		if r.Private {
			text += " private"
		}
		got = append(got, text)
	}
	slices.Sort(got)
	want := []string{
		"cargo files: static.example.net (cargo.example.org: index)", "npm files: tarballs.npm.example.org (npm.example.org: index) private",
		"pip files: files.example.net (pypi.example.org: index)", "pip files: files.example.org:8080 (pypi.example.org: index) private",
		"pip files: jsonfiles.example.net (json.example.org: index)", "pip files: target.example.org (moved.example.org: index) private",
	}
	if !slices.Equal(got, want) {
		t.Errorf("files are on\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(res.Problems) != 1 || !strings.Contains(res.Problems[0], "broken.example.org") || !strings.Contains(res.Problems[0], "status 500") {
		t.Errorf("problems are %q", res.Problems)
	}
	after := len(res.Registries)
	if Follow(t.Context(), client, res); len(res.Registries) != after {
		t.Error("hosts were added twice")
	}
}

func TestFollowGivesUp(t *testing.T) {
	client := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	res := Derive(t.Context(), system(map[string]string{"etc/pip.conf": "index-url = http://u:secret@pypi.example.org/simple/secret"}, nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	Follow(ctx, client, res)
	if len(res.Registries) != 1 || len(res.Problems) != 1 || strings.Contains(res.Problems[0], "secret") {
		t.Errorf("registries are %q, problems %q", found(res), res.Problems)
	}
}
