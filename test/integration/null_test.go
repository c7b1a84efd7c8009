package integration

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/api"
)

// Commands have an empty input also where the guest removed /dev/null, or a link
// there that leads nowhere, and so have their copies in a child.
func TestCommandsRunWithoutDevNull(t *testing.T) {
	n := newNode(t)
	for name, edits := range map[string][]string{
		"removed": {"rm /dev/null"},
		"loop":    {"rm /dev/null", "sym /dev/null null"},
	} {
		n.create(name)
		n.guest(name, append([]string{"edit"}, edits...)...)
		p, err := n.m.StartProcess(asOwner, name, api.StartRequest{Argv: []string{"guest", "sleep", "1h"}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		child := n.fork(name, 1)[0].ID
		for _, ref := range []string{name, child} {
			if out := n.guest(ref, "cat"); out != "" {
				t.Errorf("%s: a command without input read %q", name, out)
			}
			if got, err := n.m.Process(asOwner, ref, p.PID); err != nil || got.State == "ended" {
				t.Errorf("%s: the process that was started without input: %+v, %v", name, got, err)
			}
		}
	}
}

// What cannot be mounted because of the image is said to be the image's fault.
func TestAnImageWhoseDevLeadsNowhere(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(newDir(t), "link.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "dev", Linkname: "/nowhere"}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{w.Close(), f.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.m.CreateImage(asOwner, api.ImageRequest{Name: "link", Path: path}, func(api.Progress) {}); err != nil {
		t.Fatal(err)
	}
	_, err = n.m.Create(asOwner, api.CreateRequest{Image: "link"})
	wantCode(t, err, api.CodeUnsupported)
}
