package install

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/test/harness"
)

// A depot is a registry on the host's loopback with one package, named held. It sends half of the
// package to the first that asks for it, and the rest when it is opened. Others get it at once.
type depot struct {
	address string        // as sandboxes know it
	rule    string        // that allows it
	under   chan struct{} // is closed when half was sent
	open    chan struct{} // to be closed

	mu    sync.Mutex
	files map[string][]byte // by path; guarded by mu
	slow  string            // path of the package; guarded by mu
	asked int               // requests for the package; guarded by mu
}

// newDepot serves until the test ends.
func newDepot(t testing.TB) *depot {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	const host = "host.ramet.internal:"
	d := &depot{address: "http://" + host + port, rule: host + port, under: make(chan struct{}), open: make(chan struct{}), files: map[string][]byte{}}
	server := &http.Server{Handler: d, ReadHeaderTimeout: harness.Timeout}
	served := harness.InBackground(func() error { return server.Serve(l) })
	t.Cleanup(func() {
		server.Close()
		<-served // always an error, that of Close
	})
	return d
}

// add adds a file, and has the package be that one if it is slow.
func (d *depot) add(path string, contents []byte, slow bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[path] = contents
	if slow {
		d.slow = path
	}
}

// count returns how often the package was asked for.
func (d *depot) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

func (d *depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	contents, ok := d.files[r.URL.Path]
	first := false
	if r.URL.Path == d.slow {
		d.asked++
		first = d.asked == 1
	}
	d.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/simple/") {
		w.Header().Set("Content-Type", "text/html")
	} else {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	if !first {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(contents))
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(contents)))
	half := len(contents) / 2
	if _, err := w.Write(contents[:half]); err != nil {
		return
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		return
	}
	close(d.under)
	select {
	case <-d.open:
		_, _ = w.Write(contents[half:]) // the digest in the sandbox tells
	case <-r.Context().Done():
	}
}

// payload is what each package has: no compression makes it smaller.
var payload = func() string {
	b := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{9}).Read(b) // it never fails
	return string(b)
}()

// digest is that of the payload.
var digest = fmt.Sprintf("%x", sha256.Sum256([]byte(payload)))

// zipOf packs files.
func zipOf(t testing.TB, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// gzipped compresses.
func gzipped(t testing.TB, contents []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(contents); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// offerWheel makes the depot an index of pip.
func offerWheel(t testing.TB, d *depot) {
	const name, info = "held-1.0.0-py3-none-any.whl", "held-1.0.0.dist-info/"
	d.add("/simple/held/", fmt.Appendf(nil, `<a href="/%s">%s</a>`, name, name), false)
	d.add("/"+name, zipOf(t, []file{
		{"held/__init__.py", ""}, {"held/payload", payload},
		{info + "METADATA", "Metadata-Version: 2.1\nName: held\nVersion: 1.0.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", "held/__init__.py,,\nheld/payload,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	}), true)
}

// offerTarball makes the depot a registry of npm, and returns a project with a lock file.
func offerTarball(t testing.TB, d *depot) []file {
	const path = "/held/-/held-1.0.0.tgz"
	archive := gzipped(t, tarOf(t, []file{{"package/package.json", `{"name":"held","version":"1.0.0"}`}, {"package/index.js", ""}, {"package/payload", payload}}))
	d.add(path, archive, true)
	sum := sha512.Sum512(archive)
	return []file{
		{"npm/package.json", `{"name":"project","version":"1.0.0","dependencies":{"held":"1.0.0"}}`},
		{"npm/package-lock.json", fmt.Sprintf(`{"name":"project","version":"1.0.0","lockfileVersion":3,"requires":true,"packages":{
			"":{"name":"project","version":"1.0.0","dependencies":{"held":"1.0.0"}},
			"node_modules/held":{"version":"1.0.0","resolved":"%s%s","integrity":"sha512-%s"}}}`, d.address, path, base64.StdEncoding.EncodeToString(sum[:]))},
	}
}

// offerModule makes the depot a proxy of Go modules, and returns a module that needs its one.
func offerModule(t testing.TB, d *depot) []file {
	const mod, at, dir = "module example.org/held\n", "/example.org/held/@v/v1.0.0", "example.org/held@v1.0.0/"
	d.add(at+".info", []byte(`{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`), false)
	d.add(at+".mod", []byte(mod), false)
	d.add(at+".zip", zipOf(t, []file{{dir + "go.mod", mod}, {dir + "held.go", "package held\n"}, {dir + "payload", payload}}), true)
	return []file{{"module/go.mod", "module example.org/project\n\ngo 1.21\n\nrequire example.org/held v1.0.0\n"}}
}

// offerCrate makes the depot a registry of cargo, and returns a package that needs its one.
func offerCrate(t testing.TB, d *depot) []file {
	const manifest = "[package]\nname = \"%s\"\nversion = \"1.0.0\"\nedition = \"2021\"\n"
	archive := gzipped(t, tarOf(t, []file{{"held-1.0.0/Cargo.toml", fmt.Sprintf(manifest, "held")}, {"held-1.0.0/src/lib.rs", "#![no_std]\n"}, {"held-1.0.0/payload", payload}}))
	d.add("/config.json", fmt.Appendf(nil, `{"dl":"%s/crates"}`, d.address), false)
	d.add("/he/ld/held", fmt.Appendf(nil, `{"name":"held","vers":"1.0.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", sha256.Sum256(archive)), false)
	d.add("/crates/held/1.0.0/download", archive, true)
	return []file{
		{"cargo/Cargo.toml", fmt.Sprintf(manifest, "project") + "[dependencies]\nheld = \"1.0.0\"\n"}, {"cargo/src/lib.rs", "#![no_std]\n"},
		{"cargo/.cargo/config.toml", fmt.Sprintf("[source.crates-io]\nreplace-with = \"depot\"\n[source.depot]\nregistry = \"sparse+%s/\"\n", d.address)},
	}
}

// offerDeb makes the depot a repository of apt.
func offerDeb(t testing.TB, d *depot) {
	const control = "Package: held\nVersion: 1.0.0\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\nDescription: half of it is late\n"
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, m := range []struct {
		name     string
		contents []byte
	}{
		{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", gzipped(t, tarOf(t, []file{{"./control", control}}))}, {"data.tar.gz", gzipped(t, tarOf(t, []file{{"./opt/payload", payload}}))},
	} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n%s", m.name, 0, 0, 0, 0o100644, len(m.contents), m.contents)
		if len(m.contents)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	d.add("/./held.deb", b.Bytes(), true)
	d.add("/./Packages", fmt.Appendf(nil, "%sFilename: ./held.deb\nSize: %d\nSHA256: %x\n", control, b.Len(), sha256.Sum256(b.Bytes())), false)
}
