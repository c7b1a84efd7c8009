package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

const arMagic = "!<arch>\n"

// arMember returns a member of an ar archive, with its header and padding.
func arMember(name string, data []byte) []byte {
	out := fmt.Appendf(nil, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", name, 0, 0, 0, 0o100644, len(data))
	out = append(out, data...)
	if len(data)%2 == 1 {
		out = append(out, '\n')
	}
	return out
}

// fakePkg is a package to be built. Files are given in archive order.
type fakePkg struct {
	control  string // stanza without a final newline
	files    []fakeFile
	scripts  map[string]string
	compress string              // ".xz", ".gz", ".zst" or ""
	spoil    func([]byte) []byte // changes the finished file; the index describes the result
}

type fakeFile struct {
	name, body, link string
	kind             byte // 0: a directory if name ends in /, a link if link is set, else a file
	mode             int64
	gid              int
}

func compressed(t *testing.T, ext string, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	var w io.WriteCloser
	var err error
	switch ext {
	case ".gz":
		w = gzip.NewWriter(&buf)
	case ".xz":
		w, err = xz.NewWriter(&buf)
	case ".zst":
		w, err = zstd.NewWriter(&buf)
	default:
		return data
	}
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func makeTar(t *testing.T, files []fakeFile) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{
			Name: f.name, Linkname: f.link, Typeflag: f.kind, Mode: f.mode, Gid: f.gid,
			Uname: "root", ModTime: time.Unix(1_700_000_000, 0),
		}
		switch {
		case f.kind != 0:
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag = tar.TypeDir
		case f.link != "":
			h.Typeflag = tar.TypeSymlink
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(f.body))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(tw, f.body); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func (p *fakePkg) build(t *testing.T) []byte {
	t.Helper()
	control := []fakeFile{{name: "./"}, {name: "./control", body: p.control + "\n"}}
	var names []string
	for name := range p.scripts {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		control = append(control, fakeFile{name: "./" + name, body: p.scripts[name]})
	}
	deb := []byte(arMagic)
	deb = append(deb, arMember("debian-binary", []byte("2.0\n"))...)
	deb = append(deb, arMember("control.tar"+p.compress, compressed(t, p.compress, makeTar(t, control)))...)
	deb = append(deb, arMember("data.tar"+p.compress, compressed(t, p.compress, makeTar(t, p.files)))...)
	if p.spoil != nil {
		deb = p.spoil(deb)
	}
	return deb
}

// fakeArchive is an archive served over HTTP and a host configured to use it.
type fakeArchive struct {
	t     *testing.T
	url   string
	host  string // root directory of the host
	cache string
	key   *openpgp.Entity
	suite string

	mu    sync.Mutex
	files map[string][]byte
	hits  map[string]int
	// respond may take over a request; it reports whether it did.
	respond func(w http.ResponseWriter, r *http.Request) bool
}

// testNow is when every test takes place.
func testNow() time.Time { return time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC) }

var keyConfig = &packet.Config{
	Algorithm: packet.PubKeyAlgoEdDSA,
	Time:      func() time.Time { return testNow().AddDate(0, -1, 0) },
}

func newKey(t *testing.T) *openpgp.Entity {
	t.Helper()
	key, err := openpgp.NewEntity("Test Archive", "", "archive@example.org", keyConfig)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newFakeArchive serves pkgs as suite "test" of an archive signed with a new
// key, which the host's one source names.
func newFakeArchive(t *testing.T, pkgs ...fakePkg) *fakeArchive {
	t.Helper()
	a := &fakeArchive{
		t: t, host: t.TempDir(), cache: t.TempDir(), key: newKey(t), suite: "test",
		files: map[string][]byte{}, hits: map[string]int{},
	}
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	a.url = srv.URL + "/debian"
	a.publish("test", releaseFields, pkgs...)
	var pub bytes.Buffer
	if err := a.key.Serialize(&pub); err != nil {
		t.Fatal(err)
	}
	a.hostFile("usr/share/keyrings/test.gpg", pub.String())
	a.hostFile("etc/os-release", "ID=test\nVERSION_CODENAME=test\n")
	a.hostFile("etc/apt/sources.list.d/test.sources",
		"Types: deb\nURIs: "+a.url+"\nSuites: test\nComponents: main\nSigned-By: /usr/share/keyrings/test.gpg\n")
	return a
}

const releaseFields = "Origin: Test\nDate: Tue, 14 Nov 2023 22:13:20 UTC\nAcquire-By-Hash: yes\n"

// publish makes the indexes and the signed release file of a suite.
func (a *fakeArchive) publish(suite, fields string, pkgs ...fakePkg) {
	a.t.Helper()
	var index strings.Builder
	for i := range pkgs {
		deb := pkgs[i].build(a.t)
		name := fmt.Sprintf("pool/%s-%d.deb", suite, i)
		a.files["/debian/"+name] = deb
		fmt.Fprintf(&index, "%s\nFilename: %s\nSize: %d\nSHA256: %x\n\n", pkgs[i].control, name, len(deb), sha256.Sum256(deb))
	}
	a.publishIndex(suite, fields, index.String())
}

func (a *fakeArchive) publishIndex(suite, fields, index string) {
	a.t.Helper()
	dir := "/debian/dists/" + suite + "/"
	plain, packed := []byte(index), compressed(a.t, ".gz", []byte(index))
	text := "Suite: " + suite + "\n" + fields + "SHA256:\n"
	for name, data := range map[string][]byte{"": plain, ".gz": packed} {
		text += fmt.Sprintf(" %x %d main/binary-amd64/Packages%s\n", sha256.Sum256(data), len(data), name)
	}
	a.files[dir+"main/binary-amd64/Packages.gz"] = packed
	a.files[dir+"main/binary-amd64/by-hash/SHA256/"+fmt.Sprintf("%x", sha256.Sum256(packed))] = packed
	a.files[dir+"InRelease"] = a.sign(a.key, text)
}

func (a *fakeArchive) sign(key *openpgp.Entity, text string) []byte {
	a.t.Helper()
	var buf bytes.Buffer
	w, err := clearsign.Encode(&buf, key.PrivateKey, keyConfig)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return buf.Bytes()
}

func (a *fakeArchive) hostFile(name, content string) {
	a.t.Helper()
	p := filepath.Join(a.host, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		a.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
		a.t.Fatal(err)
	}
}

func (a *fakeArchive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.hits[r.URL.Path]++
	data, ok := a.files[r.URL.Path]
	respond := a.respond
	a.mu.Unlock()
	if respond != nil && respond(w, r) {
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	w.Write(data)
}

// requests counts the requests for paths that contain part, and forgets them.
func (a *fakeArchive) requests(part string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for p, c := range a.hits {
		if strings.Contains(p, part) {
			n += c
			delete(a.hits, p)
		}
	}
	return n
}

func (a *fakeArchive) options(include ...string) Options {
	return Options{
		Arch: "amd64", Include: include, CacheDir: a.cache, HostRoot: a.host, retryDelay: time.Millisecond,
		now: testNow,
	}
}

// entry is one file of an image.
type entry struct {
	h    *tar.Header
	body string
}

// readImage checks what holds for every image: parents come first and are
// directories, and no path comes twice unless it is in twice.
func readImage(t *testing.T, image []byte, twice ...string) map[string]entry {
	t.Helper()
	out := map[string]entry{}
	tr := tar.NewReader(bytes.NewReader(image))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if _, dup := out[name]; dup && !strings.Contains(strings.Join(twice, " "), name) {
			t.Errorf("%s is in the image twice", name)
		}
		if dir := filepath.Dir(name); dir != "." && (out[dir].h == nil || out[dir].h.Typeflag != tar.TypeDir) {
			t.Errorf("%s comes without its directory", name)
		}
		if h.Typeflag == tar.TypeLink && out[h.Linkname].h == nil {
			t.Errorf("hard link %s comes before its target", name)
		}
		out[name] = entry{h, string(body)}
	}
}
