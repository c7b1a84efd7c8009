package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// smallRoot holds what a root file system does, in an order that archives may
// have.
func smallRoot(tb testing.TB) []byte {
	return makeTar(tb,
		linkEntry(tar.TypeLink, "bin/early", "usr/bin/tool"),
		entry{name: "./usr/bin/tool", content: "tool", Header: tar.Header{Mode: 0o4755, Uid: 7, Gid: 100000}},
		dirEntry("./usr/"),
		entry{name: "/etc/conf", content: strings.Repeat("conf", 5000)},
		linkEntry(tar.TypeSymlink, "lib", "usr/lib"),
		entry{name: "lib/so", content: "so"},
		entry{name: "dup", content: "old"},
		entry{name: "dup", content: "new"},
		entry{name: "dev/null", Header: tar.Header{Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		entry{name: "run/fifo", Header: tar.Header{Typeflag: tar.TypeFifo}},
		entry{name: "xattr", content: "x", Header: tar.Header{PAXRecords: map[string]string{
			"SCHILY.xattr.security.capability": "\x01", "SCHILY.xattr.user.a": "", "SCHILY.xattr.security.selinux": "label", "SCHILY.xattr.system.posix_acl_access": "acl",
		}}},
		entry{name: "pax_global_header", Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "c"}}},
	)
}

func smallRootFiles() map[string]string {
	return map[string]string{
		"bin/early": "tool", "usr/bin/tool": "tool", "etc/conf": strings.Repeat("conf", 5000),
		"lib": "usr/lib", "usr/lib/so": "so", "dup": "new", "run/fifo": "", "xattr": "x",
	}
}

func TestImportTarCompressions(t *testing.T) {
	s := openStore(t)
	root := smallRoot(t)
	digests := map[string]bool{}
	for _, how := range []string{"plain", "gzip", "zstd", "xz"} {
		img, err := importTar(t, s, compress(t, how, root), Options{Name: "root:" + how})
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		digests[img.Digest] = true
		got := readStored(t, s, img.ID)
		wantFiles(t, got, smallRootFiles())
		tool := got["usr/bin/tool"]
		if tool.mode != 0o104755 || tool.uid != 7 || tool.gid != 100000 || got["bin/early"] != tool {
			t.Errorf("%s: tool %+v, link to it %+v", how, tool, got["bin/early"])
		}
		// Those that a sandbox can have.
		if x := got["xattr"].xattrs; x != `security.capability="\x01" user.a="" ` {
			t.Errorf("%s: extended attributes %s", how, x)
		}
	}
	if len(digests) != 1 {
		t.Errorf("one tar gave %d images", len(digests))
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || len(list[0].Names) != 4 {
		t.Errorf("list: %+v, %v", list, err)
	}
}

func TestImportTarOptions(t *testing.T) {
	s := openStore(t)
	config := Config{Env: []string{"PATH=/bin"}, Cmd: []string{"sh"}, Entrypoint: []string{"tini", "--"}, WorkingDir: "/w", User: "u:g"}
	var last api.Progress
	phases := map[string]bool{}
	img, err := importTar(t, s, smallRoot(t), Options{
		Name: "n", Source: "a test", Config: &config, SquashOwners: true,
		Progress: func(p api.Progress) { last = p; phases[p.Phase] = true },
	})
	if err != nil {
		t.Fatal(err)
	}
	if f := readStored(t, s, img.ID)["usr/bin/tool"]; f.uid != 0 || f.gid != 0 {
		t.Errorf("squashed owner is %d:%d", f.uid, f.gid)
	}
	if img.Source != "a test" || img.Cwd != "/w" || img.User != "u:g" || len(img.Env) != 1 || img.Cmd[0] != "sh" || len(img.Entry) != 2 {
		t.Errorf("record: %+v", img)
	}
	if !phases[PhaseUnpack] || last.Phase != PhaseSeal || last.Done != img.SizeBytes || last.Total != img.SizeBytes {
		t.Errorf("phases %v, last %+v", phases, last)
	}
	other, err := importTar(t, s, smallRoot(t), Options{SquashOwners: true})
	if err != nil || other.ID == img.ID {
		t.Errorf("the configuration is not part of the digest: %v, %v", other.ID, err)
	}
}

func TestImportTarRefuses(t *testing.T) {
	good := smallRoot(t)
	long := strings.Repeat("long/", 820) + "f"
	small := Limits{TotalBytes: 1 << 20, FileBytes: 1 << 19, Entries: 50}
	many := make([]entry, 60)
	for i := range many {
		many[i] = dirEntry("d" + strings.Repeat("x", i))
	}
	half := strings.Repeat("h", 1<<19)
	for name, c := range map[string]struct {
		data []byte
		code api.Code
	}{
		"escape":              {makeTar(t, entry{name: "../etc/passwd", content: "x"}), api.CodeHostile},
		"inner escape":        {makeTar(t, entry{name: "a/../../x", content: "x"}), api.CodeHostile},
		"hard link escape":    {makeTar(t, linkEntry(tar.TypeLink, "l", "../../etc/passwd")), api.CodeHostile},
		"dangling hard link":  {makeTar(t, linkEntry(tar.TypeLink, "l", "/etc/passwd")), api.CodeHostile},
		"link to a directory": {makeTar(t, dirEntry("d"), linkEntry(tar.TypeLink, "l", "d")), api.CodeHostile},
		"loop of symlinks":    {makeTar(t, linkEntry(tar.TypeSymlink, "l", "l"), entry{name: "l/x"}), api.CodeHostile},
		"block device":        {makeTar(t, entry{name: "disk", Header: tar.Header{Typeflag: tar.TypeBlock}}), api.CodeHostile},
		"device near dev":     {makeTar(t, entry{name: "dev/../device", Header: tar.Header{Typeflag: tar.TypeChar}}), api.CodeHostile},
		"long name":           {makeTar(t, entry{name: strings.Repeat("n", 256)}), api.CodeHostile},
		"long path":           {makeTar(t, entry{name: long}), api.CodeHostile},
		"long target":         {makeTar(t, linkEntry(tar.TypeSymlink, "l", long)), api.CodeHostile},
		"owner out of range":  {makeTar(t, entry{name: "o", Header: tar.Header{Uid: 1 << 32}}), api.CodeHostile},
		"file below a file":   {makeTar(t, entry{name: "f"}, entry{name: "f/x"}), api.CodeHostile},
		"too large a file":    {makeTar(t, entry{name: "f", content: half + "h"}), api.CodeHostile},
		"too much in all":     {makeTar(t, entry{name: "a", content: half}, entry{name: "a", content: half}, entry{name: "c", content: "c"}), api.CodeHostile},
		"too many files":      {makeTar(t, many...), api.CodeHostile},
		"too many parents":    {makeTar(t, entry{name: strings.Repeat("p/", 60) + "f"}), api.CodeHostile},
		"endless tail":        {append(bytes.Clone(good), make([]byte, 4<<20)...), api.CodeHostile},
		"in a header":         {good[:len(good)-1024-512-256], api.CodeCorrupt},
		"before the end mark": {good[:len(good)-1024], api.CodeCorrupt},
		"in a file":           {good[:4096], api.CodeCorrupt},
		"no input":            {nil, api.CodeCorrupt},
		"no tar":              {bytes.Repeat([]byte("no tar "), 1000), api.CodeCorrupt},
		"empty tar":           {makeTar(t), api.CodeInvalid},
		"bzip2":               {[]byte("BZh91AY&SY"), api.CodeUnsupported},
		"unknown type":        {makeTar(t, entry{name: "v", Header: tar.Header{Typeflag: 'V'}}), api.CodeUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			_, err := importTar(t, s, c.data, Options{Name: "n", Limits: small})
			wantCode(t, err, c.code)
			wantNothingLeft(t, s)
		})
	}
}

func TestImportTarRefusesDamagedCompression(t *testing.T) {
	root := smallRoot(t)
	for _, how := range []string{"gzip", "zstd", "xz"} {
		t.Run(how, func(t *testing.T) {
			s := openStore(t)
			data := compress(t, how, root)
			for _, cut := range []int{len(data) - 1, len(data) - 6, len(data) / 2, 12, 7} {
				if _, err := importTar(t, s, data[:cut], Options{}); api.CodeOf(err) != api.CodeCorrupt {
					t.Errorf("cut to %d of %d: %v", cut, len(data), err)
				}
			}
			bad := bytes.Clone(data)
			bad[len(bad)/2] ^= 0x55
			_, err := importTar(t, s, bad, Options{})
			wantCode(t, err, api.CodeCorrupt)
			wantNothingLeft(t, s)
		})
	}
}

func TestImportTarRefusesBombs(t *testing.T) {
	bomb := makeTar(t, entry{name: "zeros", content: strings.Repeat("\x00", 8<<20)})
	for _, how := range []string{"gzip", "zstd", "xz"} {
		t.Run(how, func(t *testing.T) {
			s := openStore(t)
			_, err := importTar(t, s, compress(t, how, bomb), Options{Limits: Limits{RatioFrom: 4 << 20}})
			wantCode(t, err, api.CodeHostile)
			wantNothingLeft(t, s)
			if _, err := importTar(t, s, compress(t, how, bomb), Options{}); err != nil {
				t.Errorf("a small file of zeros is refused: %v", err)
			}
		})
	}
}

func TestImportTarStopsWhenCancelled(t *testing.T) {
	s := openStore(t)
	ctx, cancel := context.WithCancel(context.Background())
	root := smallRoot(t)
	r := io.MultiReader(bytes.NewReader(root[:2048]), readFunc(func([]byte) (int, error) { cancel(); return 0, nil }), bytes.NewReader(root[2048:]))
	_, err := s.ImportTar(ctx, r, Options{})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	wantNothingLeft(t, s)
}

type readFunc func([]byte) (int, error)

// Read implements io.Reader; one call, then EOF.
func (f readFunc) Read(p []byte) (int, error) {
	if _, err := f(p); err != nil {
		return 0, err
	}
	return 0, io.EOF
}

func TestInputErrorsAreNotBlamedOnTheArchive(t *testing.T) {
	s := openStore(t)
	broken := api.Errorf(api.CodeUnavailable, "connection broke")
	r := io.MultiReader(bytes.NewReader(smallRoot(t)[:2048]), readFunc(func([]byte) (int, error) { return 0, broken }))
	_, err := s.ImportTar(context.Background(), r, Options{})
	wantCode(t, err, api.CodeUnavailable)
	wantNothingLeft(t, s)
}
