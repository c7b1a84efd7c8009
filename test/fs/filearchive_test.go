package fs

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

func TestArchivesKeepEverything(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	in := harness.TarOf(t,
		&tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o1770, Uid: 7, Gid: 8},
		&tar.Header{Typeflag: tar.TypeReg, Name: "d/f", Mode: 0o4755, Uid: 1000, Gid: 1001, Uname: "contents", Format: tar.FormatPAX,
			PAXRecords: map[string]string{"SCHILY.xattr.user.note": "a\x00b"}},
		&tar.Header{Typeflag: tar.TypeLink, Name: "d/hard", Linkname: "d/f"},
		&tar.Header{Typeflag: tar.TypeSymlink, Name: "d/soft", Linkname: "../elsewhere"},
		&tar.Header{Typeflag: tar.TypeFifo, Name: "d/pipe", Mode: 0o640},
		&tar.Header{Typeflag: tar.TypeReg, Name: "/absolute/deep/f", Mode: 0o600, Uname: "x"},
	)
	res, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv/in"), true, in)
	if err != nil || res.Files != 6 || res.Directories != 1 || res.Bytes != 9 {
		t.Fatalf("extracted %+v, %v", res, err)
	}
	n.MustRead(ref, "/srv/in/absolute/deep/f", "x")
	var out bytes.Buffer
	if err := n.Machine.ReadArchive(harness.AsOwnerIn(t), ref, harness.At("/srv/in/d"), &out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%c %s %o %d:%d %q %q %q", h.Typeflag, h.Name, h.Mode, h.Uid, h.Gid, h.Linkname, b, h.PAXRecords["SCHILY.xattr.user.note"]))
	}
	want := []string{
		`5 d/ 1770 7:8 "" "" ""`,
		`0 d/f 4755 1000:1001 "" "contents" "a\x00b"`,
		`1 d/hard 4755 1000:1001 "d/f" "" ""`,
		`6 d/pipe 640 0:0 "" "" ""`,
		`2 d/soft 777 0:0 "../elsewhere" "" ""`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("archive:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// A single file, and as a user who may not give files away.
	if err := n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/srv/mine"), Action: api.FileMkdir, Mode: mode(0o777)}); err != nil {
		t.Fatal(err)
	}
	if err := n.ChangeFile(ref, api.FileChange{FileRef: harness.At("/srv/mine"), Action: api.FileChmod, Mode: mode(0o777)}); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := n.Machine.ReadArchive(harness.AsOwnerIn(t), ref, harness.At("/srv/in/d/f"), &out); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, api.FileRef{Path: "/srv/mine", User: "5000:5001"}, false, &out); err != nil {
		t.Fatal(err)
	}
	if f, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, harness.At("/srv/mine/f")); err != nil || f.UID != 5000 || f.GID != 5001 || f.Size != 8 {
		t.Errorf("extracted as somebody: %+v, %v", f, err)
	}
}

// TestZerosOfArchivesAreHoles unpacks a file whose zeros take no space of the disk.
func TestZerosOfArchivesAreHoles(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	zeros := strings.Repeat("\x00", 8<<20)
	for name, contents := range map[string]string{"/middle": "a" + zeros + "b", "/end": "a" + zeros, "/all": zeros} {
		in := harness.TarOf(t, &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Uname: contents})
		if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv"), true, in); err != nil {
			t.Fatal(err)
		}
		n.MustRead(ref, "/srv"+name, contents)
	}
	st, err := n.Machine.Stats(harness.AsOwnerIn(t), ref)
	if err != nil || st.Disk.UsedMiB > 1 {
		t.Errorf("24 MiB of zeros take %+v, %v", st.Disk, err)
	}
}

// TestHostileArchives unpacks what nobody should have made.
func TestHostileArchives(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	reg := func(name string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Uname: "evil"}
	}
	link := func(name, to string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	for name, c := range map[string]struct {
		entries []*tar.Header
		code    api.Code
	}{
		"dots":                  {[]*tar.Header{reg("../evil")}, api.CodeHostile},
		"dots inside":           {[]*tar.Header{reg("a/../../evil")}, api.CodeHostile},
		"through a link":        {[]*tar.Header{link("l", "/etc"), reg("l/evil")}, api.CodeHostile},
		"through a short link":  {[]*tar.Header{link("l", ".."), reg("l/evil")}, api.CodeHostile},
		"directory by a link":   {[]*tar.Header{link("l", "/etc"), {Typeflag: tar.TypeDir, Name: "l/", Mode: 0o700}}, api.CodeHostile},
		"hard link of dots":     {[]*tar.Header{{Typeflag: tar.TypeLink, Name: "h", Linkname: "../kept"}}, api.CodeHostile},
		"hard link by a link":   {[]*tar.Header{link("l", "/etc"), {Typeflag: tar.TypeLink, Name: "h", Linkname: "l/passwd"}}, api.CodeHostile},
		"device":                {[]*tar.Header{{Typeflag: tar.TypeChar, Name: "zero", Devmajor: 1, Devminor: 5}}, api.CodeUnsupported},
		"file over a directory": {[]*tar.Header{{Typeflag: tar.TypeDir, Name: "x/", Mode: 0o755}, reg("x/y"), reg("x")}, api.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv/"+strings.ReplaceAll(name, " ", "-")), true, harness.TarOf(t, c.entries...))
			harness.WantCode(t, err, c.code)
		})
	}
	// A link in the way is replaced, not followed.
	if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv"), false, harness.TarOf(t, link("kept2", "kept"), reg("kept2"))); err != nil {
		t.Error(err)
	}
	n.MustRead(ref, "/srv/kept", "kept\n")
	n.MustRead(ref, "/srv/kept2", "evil")
	// What the sandbox has prepared does not lead out either.
	if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv/trap"), true, harness.TarOf(t, link("d", "/etc"))); err != nil {
		t.Fatal(err)
	}
	_, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv/trap"), false, harness.TarOf(t, reg("d/evil")))
	harness.WantCode(t, err, api.CodeHostile)
	for _, bad := range []string{"no archive at all, but long enough to be a header" + strings.Repeat("x", 600), "\x1f\x8b\x08gzip" + strings.Repeat("\x01", 600)} {
		_, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv"), false, strings.NewReader(bad))
		harness.WantCode(t, err, api.CodeInvalid)
	}
	cut := &io.LimitedReader{R: harness.TarOf(t, reg("cut")), N: 512 + 2}
	_, err = n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv"), false, cut)
	if harness.WantCode(t, err, api.CodeInvalid); !strings.Contains(err.Error(), "ends too early") {
		t.Errorf("an archive that was cut off: %v", err)
	}
	for _, f := range []string{"/evil", "/etc/evil", "/srv/evil"} {
		_, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, harness.At(f))
		harness.WantCode(t, err, api.CodeNotFound)
	}
}
