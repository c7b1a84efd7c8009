package trust

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/erofs"
)

// authority returns the certificate of a new authority, in PEM.
func authority(t testing.TB, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// writeImage writes an image with files. A content that begins with an arrow is the target of a link,
// and a path that ends with a slash a directory.
func writeImage(t testing.TB, files map[string]string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w, nodes := erofs.NewWriter(f), erofs.NewTree()
	for name, content := range files {
		n := erofs.Node{Kind: erofs.Regular, Mode: 0o644}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			n = erofs.Node{Kind: erofs.Symlink, Mode: 0o777, Target: target}
		} else if strings.HasSuffix(name, "/") {
			n = erofs.Node{Kind: erofs.Directory, Mode: 0o755}
		} else if n.Data, err = w.Store(strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		if err := nodes.Put(strings.TrimSuffix(name, "/"), &n); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(nodes, erofs.Options{}); err != nil {
		t.Fatal(err)
	}
	return f
}

// guest returns the files of an image.
func guest(t testing.TB, files map[string]string) *tree {
	t.Helper()
	data, err := os.ReadFile(writeImage(t, files).Name())
	if err != nil {
		t.Fatal(err)
	}
	open, err := cowfs.NewFiles(btree.OpenView(nil, 0), data)
	if err != nil {
		t.Fatal(err)
	}
	return newTree(t.Context(), open)
}

func TestTree(t *testing.T) {
	g := guest(t, map[string]string{
		"etc/ssl/cert.pem": "-> certs/all", "etc/ssl/certs/all": "all", "usr/lib/jvm/default": "-> java-17", "usr/lib/jvm/java-17/cacerts": "-> /etc/../../etc/ssl/cert.pem",
		"loop": "-> loop", "root": "-> /../..", "nowhere": "-> etc/none", "deep": "-> none/none", "empty": "", "proc/": "", "in-proc": "-> proc/cpuinfo",
	})
	if found, err := fs.Glob(g, "usr/lib/jvm/*/cacerts"); err != nil || !slices.Equal(found, []string{"usr/lib/jvm/default/cacerts", "usr/lib/jvm/java-17/cacerts"}) {
		t.Errorf("found %q, %v", found, err)
	}
	if entries, err := fs.ReadDir(g, "etc/ssl"); err != nil || len(entries) != 2 || entries[0].Type() != fs.ModeSymlink || !entries[1].IsDir() {
		t.Errorf("etc/ssl has %v, %v", entries, err)
	}
	if _, err := fs.ReadDir(g, "empty"); err == nil {
		t.Error("a file has entries")
	}
	for name, want := range map[string]string{"etc/ssl/cert.pem": "all", "usr/lib/jvm/default/cacerts": "all", "root/root/etc/ssl/certs/all": "all", "empty": ""} {
		if got, err := fs.ReadFile(g, name); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"loop", "loop/x", "nowhere", "deep", "etc/none", "empty/x"} {
		if _, err := g.Open(name); !os.IsNotExist(err) {
			t.Errorf("%s gives %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"etc/ssl/cert.pem": "etc/ssl/certs/all", "usr/lib/jvm/default/cacerts": "etc/ssl/certs/all", "nowhere": "etc/none", "a/b/c": "a/b/c", "usr/lib/jvm/default/a/b": "usr/lib/jvm/java-17/a/b", "root/x": "x",
		"loop": "", "deep": "", "loop/x": "", "deep/x/y": "", "empty/x": "", "etc/ssl": "", "root": "", "in-proc": "", "proc/x": "",
	} {
		if got, err := g.place(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%s is written to %q, %v, not to %q", name, got, err, want)
		}
	}
	g.left = 2
	if _, err := fs.ReadFile(g, "etc/ssl/certs/all"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("reading too much gives %v", err)
	}
}

// FuzzTree has links point anywhere: a path ends in a file of the tree or is not there.
func FuzzTree(f *testing.F) {
	f.Add("a", "/../a", "b", "a/..", "a/b/c")
	f.Add("a/b", "../..", "c", "../a/b/c", "a/b/c/a")
	f.Fuzz(func(t *testing.T, one, to, two, too, name string) {
		for _, n := range []string{one, two} {
			if !fs.ValidPath(n) || n == "." || len(n) > 100 || strings.ContainsRune(n, 0) {
				t.Skip()
			}
		}
		if one == two || strings.HasPrefix(one, two+"/") || strings.HasPrefix(two, one+"/") || to == "" || too == "" || len(to)+len(too) > 1000 || strings.ContainsRune(to+too, 0) {
			t.Skip()
		}
		g := guest(t, map[string]string{one: "-> " + to, two: "-> " + too})
		if _, err := g.Open(name); err == nil && !fs.ValidPath(name) {
			t.Errorf("%q is opened", name)
		}
		if !fs.ValidPath(name) || name == "." {
			return
		}
		if real, err := g.place(name); err == nil && (path.Clean("/"+real) != "/"+real || strings.HasPrefix(real+"/", "proc/")) {
			t.Errorf("%q is written to %q", name, real)
		}
	})
}

// unpack returns the files of an archive.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	files := map[string]string{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Mode != 0o644 || files[h.Name] != "" {
			t.Errorf("%+v", h)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
}

func TestMakePlan(t *testing.T) {
	public, own, tree := authority(t, "public"), authority(t, "own"), authority(t, "tree")
	const main = "etc/ssl/certs/ca-certificates.crt"
	for name, c := range map[string]struct {
		files         map[string]string
		host, further string
		want          map[string]string
		count, env    int
	}{
		"nothing is missing": {map[string]string{main: public + own}, own, "", nil, 0, 0},
		"Debian":             {map[string]string{main: public}, own, "", map[string]string{main: public + own}, 1, 9},
		"two links to one file": {
			map[string]string{main: "-> ../all", "etc/ssl/all": public, "etc/ssl/cert.pem": "-> all"}, own, "",
			map[string]string{"etc/ssl/all": public + own}, 1, 9,
		},
		"no bundle":        {map[string]string{"etc/passwd": ""}, own, "", map[string]string{main: public + own}, 1, 9},
		"a tree's":         {map[string]string{main: public + own}, own, tree, map[string]string{main: public + own + tree}, 0, 9},
		"both":             {map[string]string{main: public}, own, tree, map[string]string{main: public + own + tree}, 1, 9},
		"a directory":      {map[string]string{main + "/": ""}, own, "", map[string]string{}, 1, 0},
		"a file elsewhere": {map[string]string{main: "-> /dev/null", "dev/": "", "etc/ssl/cert.pem": public}, own, "", map[string]string{"etc/ssl/cert.pem": public + own}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := makePlan(guest(t, c.files), []byte(c.host), []byte(public+own), []byte(c.further), func(problem string) { t.Log(problem) })
			if err != nil {
				t.Fatal(err)
			}
			if c.want == nil {
				if p != nil {
					t.Fatalf("the plan is %+v", p)
				}
				return
			}
			files := unpack(t, p.archive)
			if len(files) != len(c.want) || p.count != c.count || len(p.env) != c.env {
				t.Errorf("it writes %d files, of %d authorities, with %d variables", len(files), p.count, len(p.env))
			}
			for name, want := range c.want {
				if files[name] != want {
					t.Errorf("%s is %q, not %q", name, files[name], want)
				}
			}
		})
	}
}

// TestHostBundle tells the authorities of the host from those of packages.
func TestHostBundle(t *testing.T) {
	public, own, other := authority(t, "public"), authority(t, "own"), authority(t, "other")
	dir := t.TempDir()
	was := packaged
	packaged = []string{filepath.Join(dir, "none"), dir}
	t.Cleanup(func() { packaged = was })
	path := filepath.Join(t.TempDir(), "bundle")
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "public.crt"), "# comment\n"+strings.TrimSpace(public))
	var b bundle
	for _, step := range []struct {
		text, own string
		version   uint64
	}{{public + own, own, 1}, {public + own, own, 1}, {public, "", 2}, {own + public + other, own + other, 3}} {
		if step.version != b.version {
			write(path, step.text)
		}
		if err := b.refresh(path); err != nil || string(b.all) != step.text || string(b.own) != step.own || b.version != step.version {
			t.Errorf("version %d, %v: %q", b.version, err, b.own)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := b.refresh(path); err != nil || len(b.all)+len(b.own) > 0 || b.version != 4 {
		t.Errorf("without a bundle: %v, %+v", err, b)
	}
	t.Setenv(variable, path)
	write(path, own)
	if err := b.refresh(""); err != nil || string(b.own) != own {
		t.Errorf("the bundle of the environment: %v, %q", err, b.own)
	}
	if err := b.refresh(dir); err == nil || string(b.own) != own {
		t.Errorf("a directory gives %v, and %q", err, b.own)
	}
}

// TestPlansAreKept looks at the files of an image once.
func TestPlansAreKept(t *testing.T) {
	public, own := authority(t, "public"), authority(t, "own")
	path := filepath.Join(t.TempDir(), "bundle")
	if err := os.WriteFile(path, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	image := writeImage(t, map[string]string{"etc/ssl/certs/ca-certificates.crt": public})
	trust, err := New(Config{Bundle: path, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	record := func(change func(*api.Sandbox)) *sandboxes.Record {
		rec := &sandboxes.Record{Sandbox: api.Sandbox{Image: "img", Network: &api.NetworkPolicy{}, Env: map[string]string{"PIP_CERT": "mine"}}}
		change(&rec.Sandbox)
		return rec
	}
	off := false
	for _, c := range []struct {
		what        string
		rec         *sandboxes.Record
		count, kept int
	}{
		{"no network", record(func(s *api.Sandbox) { s.Network = nil }), 0, 0},
		{"turned off", record(func(s *api.Sandbox) { s.TrustHostCA = &off }), 0, 0},
		{"one", record(func(*api.Sandbox) {}), 1, 1},
		{"one more", record(func(*api.Sandbox) {}), 1, 1},
		{"another image", record(func(s *api.Sandbox) { s.Image = "other" }), 1, 2},
	} {
		write, err := trust.OfImage(t.Context(), c.rec, image)
		if err != nil || (write != nil) != (c.count > 0) || c.rec.Sandbox.TrustedCAs != c.count || trust.plans.Len() != c.kept {
			t.Errorf("%s: %v; %d are trusted, %d plans are kept", c.what, err, c.rec.Sandbox.TrustedCAs, trust.plans.Len())
		}
		if env := c.rec.Sandbox.Env; env["PIP_CERT"] != "mine" || (env["SSL_CERT_FILE"] != "") != (c.count > 0) {
			t.Errorf("%s: the environment is %v", c.what, env)
		}
	}
	// Those of a tree are added whatever the host's are.
	tree := authority(t, "tree")
	rec := record(func(s *api.Sandbox) { s.TrustHostCA = &off })
	rec.Reach.Certificate = []byte(tree)
	if write, err := trust.OfImage(t.Context(), rec, image); write == nil || err != nil || rec.Sandbox.TrustedCAs != 0 || rec.Sandbox.Env["SSL_CERT_FILE"] == "" {
		t.Errorf("a tree's: %v, %+v", err, rec.Sandbox)
	}
	// An image that cannot be read has a sandbox all the same.
	broken, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer broken.Close()
	rec = record(func(s *api.Sandbox) { s.Image = "broken" })
	if write, err := trust.OfImage(t.Context(), rec, broken); write != nil || err != nil || rec.Sandbox.TrustedCAs != 0 {
		t.Errorf("a broken image: %v, %+v", err, rec.Sandbox)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := trust.OfImage(ctx, rec, broken); err == nil {
		t.Error("a request that was cancelled makes a sandbox")
	}
}
