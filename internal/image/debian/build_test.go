package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image/debian/fault"
)

// basePkgs is a tiny distribution.
func basePkgs() []fakePkg {
	return []fakePkg{
		{
			control: "Package: base-passwd\nVersion: 1\nArchitecture: amd64\nEssential: yes\nDescription: users\n and groups",
			files: []fakeFile{
				{name: "./"}, {name: "./usr/"}, {name: "./usr/share/"}, {name: "./usr/share/base-passwd/"},
				{name: "./usr/share/base-passwd/passwd.master", body: "root:*:0:0:root:/root:/bin/bash\ndaemon:*:1:1::/:/bin/sh\n", mode: 0o644},
				{name: "./usr/share/base-passwd/group.master", body: "root:*:0:\n", mode: 0o644},
			},
			compress: ".xz",
		},
		{
			control: "Package: shell\nVersion: 2.0-1\nArchitecture: amd64\nMulti-Arch: same\nEssential: yes\nPre-Depends: libshell (>= 1)",
			files: []fakeFile{
				{name: "./"}, {name: "./bin/"},
				{name: "./bin/sh", body: "#!shell", mode: 0o4755, gid: 42},
				{name: "./bin/rsh", link: "./bin/sh", kind: tar.TypeLink},
				{name: "./bin/bash", link: "sh"},
				{name: "./etc/"}, {name: "./etc/shell.conf", body: "conf", mode: 0o644},
				{name: "./usr/share/doc/shell/copyright", body: "doc"},
				{name: "./usr/share/man/man1/"}, {name: "./usr/share/man/man1/sh.1", body: "man"},
				{name: "./usr/share/locale/"}, {name: "./usr/share/locale/locale.alias", body: "alias"},
				{name: "./usr/share/linked", link: "./usr/share/doc/shell/copyright", kind: tar.TypeLink},
				{name: "./var/cache/shell/"}, {name: "./var/cache/shell/data", body: "x"},
			},
			scripts: map[string]string{
				"postinst": "#!/bin/sh\n", "conffiles": "/etc/shell.conf\nremove-on-upgrade /etc/gone\n",
				"triggers": "# hi\ninterest-noawait /usr/share/menus\ninterest reload\nactivate x\n",
			},
			compress: ".gz",
		},
		{
			control:  "Package: libshell\nVersion: 1:1\nArchitecture: all",
			files:    []fakeFile{{name: "./lib/"}, {name: "./lib/libshell.so", body: "lib"}},
			compress: ".zst",
		},
		{
			control: "Package: extra\nVersion: 1\nArchitecture: amd64\nDepends: shell",
			files:   []fakeFile{{name: "./usr/bin/extra", body: "extra"}},
			scripts: map[string]string{"preinst": "#!/bin/sh\n"},
		},
	}
}

func buildImage(t *testing.T, opts Options) ([]byte, *Result) {
	t.Helper()
	var buf bytes.Buffer
	res, err := Build(context.Background(), opts, &buf)
	if err != nil {
		t.Fatal(err)
	}
	if res.TarBytes != int64(buf.Len()) {
		t.Errorf("TarBytes = %d, the stream has %d", res.TarBytes, buf.Len())
	}
	return buf.Bytes(), res
}

func TestBuild(t *testing.T) {
	a := newFakeArchive(t, basePkgs()...)
	image, res := buildImage(t, a.options("extra"))
	files := readImage(t, image)

	var names []string
	for _, p := range res.Packages {
		names = append(names, p.Name+"="+p.Version)
	}
	if d := cmp.Diff([]string{"base-passwd=1", "libshell=1:1", "shell=2.0-1", "extra=1"}, names); d != "" {
		t.Error(d)
	}
	if want := fmt.Sprintf("%X", a.key.PrimaryKey.Fingerprint); len(res.Releases) != 1 || res.Releases[0].Signer != want {
		t.Errorf("releases %+v, want one signed by %s", res.Releases, want)
	}

	t.Run("links", func(t *testing.T) { checkLinks(t, files) })
	t.Run("contents", func(t *testing.T) { checkContents(t, files) })
	t.Run("modes", func(t *testing.T) { checkModes(t, files) })
	t.Run("status", func(t *testing.T) { checkStatus(t, files) })
}

func checkLinks(t *testing.T, files map[string]entry) {
	links := map[string]string{}
	for name, e := range files {
		if e.h.Linkname != "" {
			links[name] = string(e.h.Typeflag) + " " + e.h.Linkname
		}
		if e.h.Uname != "" || e.h.Gname != "" || len(e.h.PAXRecords) > 0 {
			t.Errorf("%s carries names or attributes: %+v", name, e.h)
		}
	}
	wantLinks := map[string]string{
		"bin": "2 usr/bin", "sbin": "2 usr/sbin", "lib": "2 usr/lib",
		"lib32": "2 usr/lib32", "lib64": "2 usr/lib64", "libx32": "2 usr/libx32",
		"etc/mtab": "2 ../proc/self/mounts", "usr/bin/bash": "2 sh", "usr/bin/rsh": "1 usr/bin/sh",
	}
	if d := cmp.Diff(wantLinks, links); d != "" {
		t.Error(d)
	}
}

func checkContents(t *testing.T, files map[string]entry) {
	bodies := map[string]string{
		"usr/bin/sh": "#!shell", "usr/lib/libshell.so": "lib", "usr/bin/extra": "extra",
		"usr/share/locale/locale.alias": "alias", "usr/share/linked": "doc",
		"etc/passwd":   "root:*:0:0:root:/root:/bin/bash\ndaemon:*:1:1::/:/bin/sh\n",
		"etc/group":    "root:*:0:\n",
		"etc/hostname": "localhost\n", "etc/machine-id": "", "etc/resolv.conf": "", "etc/apt/sources.list": "",
		"usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n", "etc/default/locale": "LANG=C.UTF-8\n",
		"var/lib/dpkg/arch": "amd64\n", "var/lib/dpkg/info/format": "1\n",
		"var/lib/dpkg/info/shell:amd64.postinst": "#!/bin/sh\n",
		"var/lib/dpkg/info/libshell.list":        "/lib\n/lib/libshell.so\n",
		"var/lib/dpkg/triggers/File":             "/usr/share/menus shell:amd64/noawait\n",
		"var/lib/dpkg/triggers/reload":           "shell:amd64\n",
		planFile:                                 "configure base-passwd shell:amd64 libshell\npreinst extra\n",
	}
	for name, want := range bodies {
		if e, ok := files[name]; !ok || e.body != want {
			t.Errorf("%s holds %q (present: %v), want %q", name, e.body, ok, want)
		}
	}
}

func checkModes(t *testing.T, files map[string]entry) {
	for _, name := range []string{"usr/share/doc/shell", "usr/share/doc/shell/copyright", "usr/share/man/man1/sh.1", "var/cache/shell/data", "etc/gone"} {
		if _, ok := files[name]; ok {
			t.Errorf("%s was to be left out", name)
		}
	}
	modes := map[string]int64{"usr/bin/sh": 0o4755, "tmp": 0o1777, "root": 0o700, "var/lib/dpkg/info/shell:amd64.postinst": 0o755, "var/cache/shell": 0o755, "usr/share/man/man1": 0o755}
	for name, want := range modes {
		if e, ok := files[name]; !ok || e.h.Mode != want {
			t.Errorf("%s: present %v, want mode %o", name, ok, want)
		}
	}
	if files["usr/bin/sh"].h.Gid != 42 {
		t.Errorf("group of sh is %d", files["usr/bin/sh"].h.Gid)
	}
}

func checkStatus(t *testing.T, files map[string]entry) {
	sum := md5.Sum([]byte("conf"))
	wantStatus := "Package: base-passwd\nStatus: install ok unpacked\nVersion: 1\nArchitecture: amd64\nEssential: yes\nDescription: users\n and groups\n\n" +
		"Package: libshell\nStatus: install ok unpacked\nVersion: 1:1\nArchitecture: all\n\n" +
		"Package: shell\nStatus: install ok unpacked\nVersion: 2.0-1\nArchitecture: amd64\nMulti-Arch: same\nEssential: yes\nPre-Depends: libshell (>= 1)\n" +
		"Conffiles:\n /etc/shell.conf " + hex.EncodeToString(sum[:]) + "\n\n" +
		"Package: extra\nStatus: install ok unpacked\nVersion: 1\nArchitecture: amd64\nDepends: shell\n\n"
	if d := cmp.Diff(wantStatus, files["var/lib/dpkg/status"].body); d != "" {
		t.Error(d)
	}
}

func TestBuildCached(t *testing.T) {
	a := newFakeArchive(t, basePkgs()...)
	first, res := buildImage(t, a.options("extra"))
	if res.Fetched == 0 || res.Cached != 0 {
		t.Errorf("first run: fetched %d, cached %d bytes", res.Fetched, res.Cached)
	}
	if n := a.requests("/by-hash/"); n != 1 {
		t.Errorf("%d requests for the index by hash, want 1", n)
	}
	a.requests("")
	var last Progress
	opts := a.options("extra")
	opts.Progress = func(p Progress) { last = p }
	second, res := buildImage(t, opts)
	if !bytes.Equal(first, second) {
		t.Error("the same archive gave another image")
	}
	if want := (Progress{PhaseUnpack, 4, 4, ""}); last != want {
		t.Errorf("last progress %+v, want %+v", last, want)
	}
	if res.Fetched != 0 || res.Cached == 0 {
		t.Errorf("second run: fetched %d, cached %d bytes", res.Fetched, res.Cached)
	}
	if n := a.requests("InRelease"); n != 1 {
		t.Errorf("%d requests for the release file, want 1", n)
	}
	if n := a.requests(""); n != 0 {
		t.Errorf("%d other requests, want none", n)
	}

	// A damaged file is noticed and fetched again.
	damaged := filepath.Join(a.cache, "sha256", res.Packages[0].SHA256[:2], res.Packages[0].SHA256)
	if err := os.WriteFile(damaged, []byte("damage"), 0o600); err != nil {
		t.Fatal(err)
	}
	third, res := buildImage(t, a.options("extra"))
	if !bytes.Equal(first, third) || res.Fetched != res.Packages[0].Size {
		t.Errorf("after damage: same image %v, fetched %d bytes", bytes.Equal(first, third), res.Fetched)
	}
	left, err := os.ReadDir(filepath.Join(a.cache, "tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files left: %v, %v", left, err)
	}
}

func TestBuildSecuritySuite(t *testing.T) {
	a := newFakeArchive(t, basePkgs()...)
	newer := basePkgs()[3]
	newer.control = strings.Replace(newer.control, "Version: 1", "Version: 1+deb1", 1)
	older := basePkgs()[2]
	older.control = strings.Replace(older.control, "1:1", "9", 1) // the epoch decides
	a.publish("test-security", releaseFields, newer, older)
	vendor := basePkgs()[1]
	vendor.control = strings.Replace(vendor.control, "2.0-1", "99", 1)
	a.publish("test-updates", strings.Replace(releaseFields, "Origin: Test", "Origin: Vendor", 1), vendor)
	a.hostFile("etc/apt/sources.list", "# classic\ndeb [arch=amd64 signed-by=/usr/share/keyrings/test.gpg] "+a.url+" test-updates main\n"+
		"deb [signed-by=/usr/share/keyrings/test.gpg] "+a.url+"/ test-security main contrib\n"+
		"deb "+a.url+" test-backports main\ndeb-src "+a.url+" test main\ndeb cdrom:[x]/ test main\n")
	opts := a.options("extra")
	opts.KeepSources = true
	image, res := buildImage(t, opts)
	got := map[string]string{}
	for _, p := range res.Packages {
		got[p.Name] = p.Version
	}
	want := map[string]string{"base-passwd": "1", "libshell": "1:1", "shell": "2.0-1", "extra": "1+deb1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	wantList := "deb " + a.url + " test main\ndeb " + a.url + " test-security main contrib\n"
	if got := readImage(t, image)["etc/apt/sources.list"].body; got != wantList {
		t.Errorf("sources.list is %q, want %q", got, wantList)
	}
}

func TestBuildRetries(t *testing.T) {
	a := newFakeArchive(t, basePkgs()...)
	failed := map[string]int{}
	a.respond = func(w http.ResponseWriter, r *http.Request) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		failed[r.URL.Path]++
		switch failed[r.URL.Path] {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		case 2: // an answer that stops early
			data := a.files[r.URL.Path]
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			w.Write(data[:len(data)/2])
			return true
		}
		return false
	}
	buildImage(t, a.options("extra"))
	for path, n := range failed {
		if n != 3 {
			t.Errorf("%d requests for %s, want 3", n, path)
		}
	}
}

func TestBuildReplaces(t *testing.T) {
	replacer := fakePkg{
		control: "Package: newsh\nVersion: 1\nArchitecture: amd64\nDepends: shell\nReplaces: shell (<< 3)",
		files:   []fakeFile{{name: "./bin/sh", body: "new"}},
	}
	a := newFakeArchive(t, append(basePkgs(), replacer)...)
	image, _ := buildImage(t, a.options("newsh"))
	if got := readImage(t, image, "usr/bin/sh")["usr/bin/sh"].body; got != "new" {
		t.Errorf("sh is %q", got)
	}
}

func TestBuildFollowsLinks(t *testing.T) {
	a := newFakeArchive(t, fakePkg{
		control: "Package: linker\nVersion: 1\nArchitecture: amd64",
		files: []fakeFile{
			{name: "./etc/"}, {name: "./usr/share/alias", link: "/etc"}, {name: "./usr/share/up", link: "../../../../etc"},
			{name: "./usr/share/alias/via-absolute", body: "1"}, {name: "./usr/share/up/via-relative", body: "2"},
			{name: "./usr/share/dangling", link: "/opt/new"}, {name: "./usr/share/dangling/x", body: "3"},
		},
	})
	image, _ := buildImage(t, a.options("linker"))
	files := readImage(t, image) // checks that nothing lies below a link
	for name, want := range map[string]string{"etc/via-absolute": "1", "etc/via-relative": "2", "opt/new/x": "3"} {
		if files[name].body != want {
			t.Errorf("%s holds %q, want %q", name, files[name].body, want)
		}
	}
}

// want describes an expected error: its type and the code a user's program sees.
type want struct {
	typ  any
	code api.Code
	text string
}

func checkError(t *testing.T, err error, w want) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if !errors.As(err, w.typ) {
		t.Errorf("got %v, want a %T", err, w.typ)
	}
	if got := api.CodeOf(err); got != w.code {
		t.Errorf("code %s, want %s", got, w.code)
	}
	if !strings.Contains(err.Error(), w.text) {
		t.Errorf("%q does not mention %q", err, w.text)
	}
}

func TestBuildRefuses(t *testing.T) {
	const inRelease = "/debian/dists/test/InRelease"
	hostile := want{new(*fault.SignatureError), api.CodeHostile, "InRelease"}
	tests := []struct {
		name   string
		change func(a *fakeArchive, o *Options)
		want   want
	}{
		{"key is not known", func(a *fakeArchive, _ *Options) {
			a.key = newKey(a.t)
			a.publish("test", releaseFields, basePkgs()...)
		}, hostile},
		{"unsigned", func(a *fakeArchive, _ *Options) { a.files[inRelease] = []byte("Suite: test\n") }, hostile},
		{"changed after signing", func(a *fakeArchive, _ *Options) {
			a.files[inRelease] = bytes.Replace(a.files[inRelease], []byte("Origin: Test"), []byte("Origin: Fake"), 1)
		}, hostile},
		{"keyring is missing", func(a *fakeArchive, _ *Options) {
			a.hostFile("etc/apt/sources.list.d/test.sources", "Types: deb\nURIs: "+a.url+"\nSuites: test\nComponents: main\nSigned-By: /usr/share/keyrings/gone.gpg\n")
		}, hostile},
		{"fingerprint does not match", func(a *fakeArchive, _ *Options) {
			data, _ := os.ReadFile(filepath.Join(a.host, "usr/share/keyrings/test.gpg"))
			a.hostFile("etc/apt/trusted.gpg.d/test.gpg", string(data))
			a.hostFile("etc/apt/sources.list.d/test.sources", "Types: deb\nURIs: "+a.url+"\nSuites: test\nComponents: main\nSigned-By: 0123456789ABCDEF0123456789ABCDEF01234567\n")
		}, hostile},
		{"expired", func(a *fakeArchive, _ *Options) {
			a.publish("test", releaseFields+"Valid-Until: Sun, 31 Dec 2023 00:00:00 UTC\n", basePkgs()...)
		}, want{new(*fault.StaleError), api.CodeHostile, "2023-12-31"}},
		{"another suite", func(a *fakeArchive, _ *Options) {
			a.publish("old", releaseFields, basePkgs()...)
			a.files[inRelease] = a.files["/debian/dists/old/InRelease"]
		}, want{new(*fault.MalformedError), api.CodeHostile, "another suite"}},
		{"index does not match", func(a *fakeArchive, _ *Options) {
			for p := range a.files {
				if strings.Contains(p, "Packages.gz") || strings.Contains(p, "by-hash") {
					a.files[p] = bytes.Repeat([]byte("x"), len(a.files[p]))
				}
			}
		}, want{new(*fault.DigestError), api.CodeCorrupt, "Packages.gz"}},
		{"package does not match", func(a *fakeArchive, _ *Options) {
			a.files["/debian/pool/test-3.deb"][100] ^= 1
		}, want{new(*fault.DigestError), api.CodeCorrupt, "package extra"}},
		{"package is too long", func(a *fakeArchive, _ *Options) {
			a.files["/debian/pool/test-3.deb"] = append(a.files["/debian/pool/test-3.deb"], 0)
		}, want{new(*fault.DigestError), api.CodeCorrupt, "package extra"}},
		{"package is too short", func(a *fakeArchive, _ *Options) {
			a.files["/debian/pool/test-3.deb"] = a.files["/debian/pool/test-3.deb"][:50]
		}, want{new(*fault.FetchError), api.CodeUnavailable, "50 of"}},
		{"package is gone", func(a *fakeArchive, _ *Options) {
			delete(a.files, "/debian/pool/test-3.deb")
		}, want{new(*fault.FetchError), api.CodeUnavailable, "404"}},
		{"unknown package", func(_ *fakeArchive, o *Options) { o.Include = []string{"unknown"} },
			want{new(*fault.DependencyError), api.CodeNotFound, "package unknown wanted by the include list"}},
		{"missing dependency", func(a *fakeArchive, _ *Options) {
			p := basePkgs()
			p[2].control += "\nDepends: nowhere (>= 3)"
			a.publish("test", releaseFields, p...)
		}, want{new(*fault.DependencyError), api.CodeNotFound, "package nowhere (>= 3) wanted by libshell, wanted by shell"}},
		{"no sources", func(a *fakeArchive, _ *Options) {
			a.hostFile("etc/apt/sources.list.d/test.sources", "Types: deb\nEnabled: no\nURIs: "+a.url+"\nSuites: test\nComponents: main\n")
		}, want{new(*fault.NoSourcesError), api.CodeUnsupported, "or ask for the release that is in one"}},
		{"bad mirror", func(_ *fakeArchive, o *Options) { o.Mirror = "ftp://u:secret@example.org" },
			want{new(*api.Error), api.CodeInvalid, "mirror"}},
		{"bad include", func(_ *fakeArchive, o *Options) { o.Include = []string{"a;b"} },
			want{new(*api.Error), api.CodeInvalid, "include"}},
		{"bad suite", func(_ *fakeArchive, o *Options) { o.Suite = "../x" },
			want{new(*api.Error), api.CodeInvalid, "suite"}},
		{"index larger than listed", func(a *fakeArchive, _ *Options) {
			text := string(a.files[inRelease])
			text = text[strings.Index(text, "Suite:"):strings.Index(text, "-----BEGIN PGP SIGNATURE")]
			text = regexp.MustCompile(` \d+ main/binary-amd64/Packages\n`).ReplaceAllString(text, " 7 main/binary-amd64/Packages\n")
			a.files[inRelease] = a.sign(a.key, text)
		}, want{new(*fault.LimitError), api.CodeLimit, "Packages"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newFakeArchive(t, basePkgs()...)
			opts := a.options("extra")
			tt.change(a, &opts)
			_, err := Build(context.Background(), opts, io.Discard)
			checkError(t, err, tt.want)
		})
	}
}

// The index promises these packages as they are, so only their content can be
// what stops them.
func TestBuildRefusesPackage(t *testing.T) {
	hostile := func(text string) want { return want{new(*fault.MalformedError), api.CodeHostile, text} }
	tests := []struct {
		name  string
		files []fakeFile
		edit  func(p *fakePkg)
		want  want
	}{
		{"escape by dots", []fakeFile{{name: "../evil", body: "x"}}, nil, hostile("leaves the root")},
		{"escape inside", []fakeFile{{name: "./usr/../../evil", body: "x"}}, nil, hostile("leaves the root")},
		{"hard link out", []fakeFile{{name: "./x", link: "../etc/shadow", kind: tar.TypeLink}}, nil, hostile("leaves the root")},
		{"hard link to nothing", []fakeFile{{name: "./x", link: "./y", kind: tar.TypeLink}}, nil, hostile("not in the package")},
		{"hard link to another package", []fakeFile{{name: "./x", link: "./usr/lib/libshell.so", kind: tar.TypeLink}}, nil, hostile("not in the package")},
		{"circle of links", []fakeFile{{name: "./a", link: "b"}, {name: "./b", link: "a"}, {name: "./a/x", body: "x"}}, nil, hostile("too many symbolic links")},
		{"path through a file", []fakeFile{{name: "./a", body: "x"}, {name: "./a/x", body: "x"}}, nil, hostile("goes through the file")},
		{"twice", []fakeFile{{name: "./a", body: "x"}, {name: "a", body: "y"}}, nil, hostile("twice")},
		{"device", []fakeFile{{name: "./dev/mem", kind: tar.TypeChar}}, nil, hostile("no package may contain")},
		{"pipe", []fakeFile{{name: "./p", kind: tar.TypeFifo}}, nil, hostile("no package may contain")},
		{"line break", []fakeFile{{name: "./a\n/etc/x", body: "x"}}, nil, hostile("bad path")},
		{"same file as another", []fakeFile{{name: "./bin/sh", body: "x"}}, nil, want{new(*fault.FileConflictError), api.CodeConflict, "shell and bad both contain /usr/bin/sh"}},
		{"file in place of the layout", []fakeFile{{name: "./usr/bin", body: "x"}}, nil, want{new(*fault.FileConflictError), api.CodeConflict, "/usr/bin"}},
		{"truncated", nil, func(p *fakePkg) { p.spoil = func(b []byte) []byte { return b[:len(b)-600] } }, hostile("middle of a member")},
		{"no data", nil, func(p *fakePkg) {
			p.spoil = func(b []byte) []byte { return b[:bytes.Index(b, []byte("data.tar"))] }
		}, hostile("no data archive")},
		{"not a package", nil, func(p *fakePkg) { p.spoil = func([]byte) []byte { return []byte("hello") } }, hostile("not an ar archive")},
		{"unknown compression", nil, func(p *fakePkg) {
			p.spoil = func(b []byte) []byte { return bytes.Replace(b, []byte("data.tar  "), []byte("data.tar.q"), 1) }
		}, hostile("unknown compression")},
		{"damaged xz", nil, func(p *fakePkg) {
			p.compress = ".xz"
			p.spoil = func(b []byte) []byte { b[len(b)-40] ^= 0xff; return b }
		}, hostile("cannot be read")},
		{"other version", nil, func(p *fakePkg) {
			p.spoil = func(b []byte) []byte { return bytes.Replace(b, []byte("Version: 1"), []byte("Version: 2"), 1) }
		}, hostile("the index says")},
		{"control entry with a path", nil, func(p *fakePkg) { p.scripts = map[string]string{"../../evil": "x"} }, hostile("unexpected entry")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bad := fakePkg{control: "Package: bad\nVersion: 1\nArchitecture: amd64\nDepends: shell", files: tt.files}
			if tt.files == nil {
				bad.files = []fakeFile{{name: "./usr/"}}
			}
			if tt.edit != nil {
				tt.edit(&bad)
			}
			a := newFakeArchive(t, append(basePkgs(), bad)...)
			_, err := Build(context.Background(), a.options("bad"), io.Discard)
			checkError(t, err, tt.want)
		})
	}
}

func TestBuildAllowances(t *testing.T) {
	stale := releaseFields + "Valid-Until: Sun, 31 Dec 2023 00:00:00 UTC\n"
	a := newFakeArchive(t, basePkgs()...)
	a.publish("test", stale, basePkgs()...)
	opts := a.options()
	opts.AllowExpired = true
	buildImage(t, opts)
	a.hostFile("etc/apt/apt.conf.d/99x", `Acquire { Check-Valid-Until "false"; };`)
	buildImage(t, a.options())

	a.key = newKey(t)
	a.publish("test", releaseFields, basePkgs()...)
	opts = a.options()
	opts.AllowUnsigned = true
	if _, res := buildImage(t, opts); res.Releases[0].Signer != "" {
		t.Errorf("unchecked release names the signer %q", res.Releases[0].Signer)
	}

	// An explicit mirror needs neither sources nor their keyring.
	b := newFakeArchive(t, basePkgs()...)
	var pub bytes.Buffer
	if err := b.key.Serialize(&pub); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key.gpg")
	if err := os.WriteFile(key, pub.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	opts = b.options()
	opts.HostRoot, opts.Mirror, opts.Suite, opts.Keyrings, opts.CacheDir = t.TempDir(), b.url, "test", []string{key}, ""
	buildImage(t, opts)
}

func TestBuildLocalMirror(t *testing.T) {
	a := newFakeArchive(t, basePkgs()...)
	dir := t.TempDir()
	for name, data := range a.files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	overHTTP, _ := buildImage(t, a.options("extra"))
	opts := a.options("extra")
	opts.Mirror, opts.CacheDir = "file://"+dir+"/debian", t.TempDir()
	opts.Keyrings = []string{filepath.Join(a.host, "usr/share/keyrings/test.gpg")}
	if fromDisk, _ := buildImage(t, opts); !bytes.Equal(overHTTP, fromDisk) {
		t.Error("the image depends on where the archive is")
	}
}

func TestBuildCanceled(t *testing.T) {
	a := newFakeArchive(t, basePkgs()...)
	ctx, cancel := context.WithCancel(context.Background())
	a.respond = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/pool/") {
			cancel()
			<-r.Context().Done() // ends when the client goes away
			return true
		}
		return false
	}
	_, err := Build(ctx, a.options("extra"), io.Discard)
	if api.CodeOf(err) != api.CodeCanceled || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v with code %s", err, api.CodeOf(err))
	}
}

type failingWriter struct{ left int }

var errDisk = errors.New("disk full")

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

func TestBuildWriteError(t *testing.T) {
	a := newFakeArchive(t, basePkgs()...)
	image, _ := buildImage(t, a.options("extra"))
	for left := 0; left < len(image); left += 4096 {
		if _, err := Build(context.Background(), a.options("extra"), &failingWriter{left}); !errors.Is(err, errDisk) {
			t.Fatalf("after %d bytes: got %v", left, err)
		}
	}
}

func TestConfigureSteps(t *testing.T) {
	for _, s := range ConfigureSteps() {
		if s.Name == "" || !filepath.IsAbs(s.Argv[0]) || len(s.Env) == 0 {
			t.Errorf("incomplete step %+v", s)
		}
	}
}
