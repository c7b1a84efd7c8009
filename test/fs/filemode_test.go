package fs

import (
	"archive/tar"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestModeOfALink changes the mode of what a symbolic link leads to, and not of the link,
// which has none.
func TestModeOfALink(t *testing.T) {
	n := harness.NewNode(t)
	ref := n.Create("").ID
	n.Put(ref, api.WriteRequest{FileRef: harness.At("/srv/file"), Parents: true}, "x")
	if _, err := n.Machine.WriteArchive(harness.AsOwnerIn(t), ref, harness.At("/srv"), false, harness.TarOf(t, &tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "file"})); err != nil {
		t.Fatal(err)
	}
	c := api.FileChange{FileRef: harness.At("/srv/link"), Action: api.FileChmod, Mode: mode(0o640)}
	if f, err := n.Machine.ChangeFile(harness.AsOwnerIn(t), ref, c); err != nil || f.Type != "file" || f.Mode != "0640" {
		t.Errorf("it describes %+v, %v", f, err)
	}
	c.NoFollow, c.Mode = true, mode(0o600)
	harness.WantCode(t, n.ChangeFile(ref, c), api.CodeUnsupported)
	if f, err := n.Machine.StatFile(harness.AsOwnerIn(t), ref, harness.At("/srv/file")); err != nil || f.Mode != "0640" {
		t.Errorf("the file is %+v, %v", f, err)
	}
}
