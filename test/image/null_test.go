package image

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// Commands have an empty input also where the guest removed /dev/null, or a link
// there that leads nowhere, and so have their copies in a child.
func TestCommandsRunWithoutDevNull(t *testing.T) {
	n := harness.NewNode(t)
	for name, edits := range map[string][]string{
		"removed": {"rm /dev/null"},
		"loop":    {"rm /dev/null", "sym /dev/null null"},
	} {
		n.Create(name)
		n.Guest(name, append([]string{"edit"}, edits...)...)
		p, err := n.Machine.StartProcess(harness.AsOwner, name, api.StartRequest{Argv: []string{"guest", "sleep", "1h"}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		child := n.Fork(name, 1)[0].ID
		for _, ref := range []string{name, child} {
			if out := n.Guest(ref, "cat"); out != "" {
				t.Errorf("%s: a command without input read %q", name, out)
			}
			if got, err := n.Machine.Process(harness.AsOwner, ref, p.PID); err != nil || got.State == "ended" {
				t.Errorf("%s: the process that was started without input: %+v, %v", name, got, err)
			}
		}
	}
}

// What cannot be mounted because of the image is said to be the image's fault.
func TestAnImageWhoseDevLeadsNowhere(t *testing.T) {
	n := harness.NewNode(t)
	path := filepath.Join(harness.NewDir(t), "link.tar")
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
	if _, err := n.Machine.CreateImage(harness.AsOwner, api.ImageRequest{Name: "link", Path: path}, func(api.Progress) {}); err != nil {
		t.Fatal(err)
	}
	_, err = n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "link"})
	harness.WantCode(t, err, api.CodeUnsupported)
}
