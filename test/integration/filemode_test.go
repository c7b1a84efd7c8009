package integration

import (
	"archive/tar"
	"testing"

	"ramet.dev/ramet/api"
)

// TestModeOfALink changes the mode of what a symbolic link leads to, and not of the link,
// which has none.
func TestModeOfALink(t *testing.T) {
	n := newNode(t)
	ref := n.create("").ID
	n.put(ref, api.WriteRequest{FileRef: at("/srv/file"), Parents: true}, "x")
	if _, err := n.m.WriteArchive(asOwnerIn(t), ref, at("/srv"), false, tarOf(t, &tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "file"})); err != nil {
		t.Fatal(err)
	}
	c := api.FileChange{FileRef: at("/srv/link"), Action: api.FileChmod, Mode: mode(0o640)}
	if f, err := n.m.ChangeFile(asOwnerIn(t), ref, c); err != nil || f.Type != "file" || f.Mode != "0640" {
		t.Errorf("it describes %+v, %v", f, err)
	}
	c.NoFollow, c.Mode = true, mode(0o600)
	wantCode(t, n.change1(ref, c), api.CodeUnsupported)
	if f, err := n.m.StatFile(asOwnerIn(t), ref, at("/srv/file")); err != nil || f.Mode != "0640" {
		t.Errorf("the file is %+v, %v", f, err)
	}
}
