package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/test/harness"
)

var asLayer = api.ExportRequest{Format: api.ExportLayer}

// tarNames lists an archive without the directories.
func tarNames(t testing.TB, archive []byte) []string {
	t.Helper()
	names := []string{}
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := in.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeDir {
			names = append(names, h.Name)
		}
	}
}

// TestCommit makes images of a sandbox that goes on, of its child and of its
// snapshots, and sandboxes of those images.
func TestCommit(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	config := image.Config{Env: []string{"A=b"}, Cmd: []string{"guest"}, WorkingDir: "/srv", User: "worker"}
	n.ImportWith(image.Options{Name: "set", Config: &config})
	if _, err := n.Machine.Create(ctx, api.CreateRequest{Image: "set", Name: "parent", Env: map[string]string{"SECRET": "x"}}); err != nil {
		t.Fatal(err)
	}
	if left := tarNames(t, n.Export("parent", asLayer)); len(left) > 0 {
		t.Errorf("an untouched sandbox has changes: %v", left)
	}
	asRoot := func(ref string, args ...string) {
		t.Helper()
		out, err := n.Run(ref, api.ExecRequest{Argv: append([]string{"guest"}, args...), User: "root"}, "")
		if err != nil || out.ExitCode != 0 {
			t.Fatalf("%s: %v: %v %s", ref, args, err, out.Stderr.String())
		}
	}
	asRoot("parent", "write", "/srv/changed", "other\n", "600")
	asRoot("parent", "write", "/srv/new/deep/file", "hello\n")
	asRoot("parent", "rm", "/srv/deleted")
	asRoot("parent", "mv", "/srv/text", "/srv/moved")
	asRoot("parent", "write", "/tmp/left-out", "")
	asRoot("parent", "write", "/etc/hostname", "mine")
	layer := tarNames(t, n.Export("parent", asLayer))
	if want := []string{"srv/changed", "srv/.wh.deleted", "srv/moved", "srv/new/deep/file", "srv/.wh.text"}; !slices.Equal(layer, want) {
		t.Errorf("layer has %v, want %v", layer, want)
	}
	img, err := n.Machine.Commit(ctx, "parent", api.CommitRequest{Name: "one:2", Message: "a try"}, func(api.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(img.Env, config.Env) || !slices.Equal(img.Cmd, config.Cmd) || img.Cwd != "/srv" || img.User != "worker" || img.Source != "commit of parent: a try" {
		t.Errorf("image %+v", img)
	}
	for name, memory := range map[string]bool{"in-memory": true, "on-disk": false} {
		if _, err := n.Machine.Snapshot(ctx, "parent", api.SnapshotRequest{Name: name, Memory: memory}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := n.Machine.Fork(ctx, "parent", api.ForkRequest{Names: []string{"child"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	asRoot("parent", "rm", "/srv/new") // later: none of what follows has it
	// The same files are the same image, whoever has them.
	for _, ref := range []string{"child", "in-memory", "on-disk"} {
		if same := n.Commit(ref, "from-"+ref); same.ID != img.ID {
			t.Errorf("image of %s is %s, not %s", ref, same.ID, img.ID)
		}
	}
	// Of a snapshot the same bytes come each time.
	whole := api.ExportRequest{Format: api.ExportOCI, Gzip: true}
	if !bytes.Equal(n.Export("on-disk", whole), n.Export("on-disk", whole)) {
		t.Error("two archives of one snapshot differ")
	}
	for i, ref := range []string{"child", "in-memory", "on-disk"} {
		n.ImportBytes(fmt.Sprint("imported-", i), n.Export(ref, api.ExportRequest{Format: api.ExportOCI, Gzip: i == 0}))
	}
	for _, from := range []string{"one:2", "imported-0", "imported-1", "imported-2"} {
		s := n.CreateFrom(from, strings.ReplaceAll(from, ":", "-"))
		if s.Env["A"] != "b" || s.Env["SECRET"] != "" || s.Cwd != "/srv" || s.User != "worker" {
			t.Errorf("sandbox of %s: %+v", from, s)
		}
		out, err := n.Run(s.ID, api.ExecRequest{Argv: []string{"guest", "cat", "/srv/new/deep/file", "/srv/changed", "/srv/moved", "/srv/kept"}, User: "root"}, "")
		if err != nil || out.Stdout.String() != "hello\nother\nno programkept\n" {
			t.Errorf("in %s: %q %v %s", from, out.Stdout.String(), err, out.Stderr.String())
		}
		for _, gone := range []string{"/srv/deleted", "/srv/text", "/tmp/left-out"} {
			if out, err := n.Run(s.ID, api.ExecRequest{Argv: []string{"guest", "cat", gone}}, ""); err != nil || out.ExitCode == 0 {
				t.Errorf("in %s there is %s (%v)", from, gone, err)
			}
		}
		if left := tarNames(t, n.Export(s.ID, asLayer)); len(left) > 0 {
			t.Errorf("an untouched sandbox of %s has changes: %v", from, left)
		}
	}
}

// TestCommitOfWhatChanges packs a sandbox in which files are replaced all the time,
// in one order: what is packed must be one moment.
func TestCommitOfWhatChanges(t *testing.T) {
	ctx, cancel := context.WithCancel(harness.AsOwner)
	n := harness.NewNode(t)
	n.Create("parent")
	var command sync.WaitGroup
	defer command.Wait()
	defer cancel()
	g := harness.NewGatedWriter()
	close(g.Open)
	command.Go(func() {
		_, err := n.Machine.Exec(ctx, "parent", api.ExecRequest{Argv: []string{"guest", "churn", "/srv/churn"}}, api.ExecIO{Stdout: g, Stderr: io.Discard})
		harness.WantCode(t, err, api.CodeCanceled)
	})
	<-g.Waiting
	// Of the seven names one is missing at any moment, or is being made.
	alone := func() error {
		found := map[string]bool{}
		for _, name := range tarNames(t, n.Export("parent", api.ExportRequest{Format: api.ExportTar})) {
			if rest, ok := strings.CutPrefix(name, "srv/churn/"); ok {
				found[strings.TrimSuffix(rest, "/deep/file")] = true
			}
		}
		if len(found) < 6 {
			return fmt.Errorf("only %v are there", found)
		}
		return nil
	}
	harness.Eventually(t, "seven names", alone)
	for i := range 20 {
		if i%5 == 0 {
			n.Commit("parent", fmt.Sprint("c", i))
		}
		if err := alone(); err != nil {
			t.Error(err)
		}
	}
}

func TestCommitErrors(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	nothing := func(api.Progress) {}
	for _, c := range []struct {
		ref, name string
		code      api.Code
	}{{"nobody", "x", api.CodeNotFound}, {"box", "No Name", api.CodeInvalid}, {"box", "", api.CodeInvalid}, {"snap_aaaaaaaaaaaaaaaa", "x", api.CodeNotFound}} {
		_, err := n.Machine.Commit(ctx, c.ref, api.CommitRequest{Name: c.name}, nothing)
		harness.WantCode(t, err, c.code)
	}
	harness.WantCode(t, n.Machine.Export(ctx, "nobody", asLayer, io.Discard), api.CodeNotFound)
	harness.WantCode(t, n.Machine.Export(ctx, "box", api.ExportRequest{Format: "zip"}, io.Discard), api.CodeInvalid)
	broken := errors.New("nobody reads")
	if err := n.Machine.Export(ctx, "box", api.ExportRequest{Format: api.ExportTar}, failingWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("with a broken writer: %v", err)
	}
	n.Guest("box", "write", "/srv/.wh.x", "")
	harness.WantCode(t, n.Machine.Export(ctx, "box", asLayer, io.Discard), api.CodeUnsupported)
	// A paused one has files, too, and one name moves from image to image.
	if _, err := n.Machine.Pause(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	first := n.Commit("box", "name")
	if _, err := n.Machine.Resume(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	n.Guest("box", "write", "/srv/more", "")
	if _, err := n.Machine.Commit(ctx, "box", api.CommitRequest{Name: "name"}, nothing); api.CodeOf(err) != api.CodeNameTaken || !strings.Contains(err.Error(), first.ID) {
		t.Errorf("a name that %s has is taken: %v", first.ID, err)
	}
	if img, err := n.Machine.GetImage(ctx, "name"); err != nil || img.ID != first.ID {
		t.Errorf("the name is %+v's, %v", img, err)
	}
	second, err := n.Machine.Commit(ctx, "box", api.CommitRequest{Name: "name", Replace: true}, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID == second.ID || len(second.Names) != 1 {
		t.Errorf("images %+v and %+v", first, second)
	}
	// It is an image like any other.
	s := n.CreateFrom("name", "user")
	harness.WantCode(t, n.Machine.RemoveImage(ctx, "name"), api.CodeConflict)
	n.Destroy(s.ID)
	for _, ref := range []string{"name", first.ID} {
		if err := n.Machine.RemoveImage(ctx, ref); err != nil {
			t.Error(err)
		}
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// TestPackedMeanwhile destroys a sandbox and removes its image while it is packed.
func TestPackedMeanwhile(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	n.Guest("box", "fill", "/srv/large", "8")
	g := harness.NewGatedWriter()
	var out bytes.Buffer
	done := harness.InBackground(func() error {
		return n.Machine.Export(ctx, "box", api.ExportRequest{Format: api.ExportTar}, io.MultiWriter(g, &out))
	})
	<-g.Waiting
	n.Destroy("box")
	harness.WantCode(t, n.Machine.RemoveImage(ctx, "box"), api.CodeConflict)
	close(g.Open)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if names := tarNames(t, out.Bytes()); !slices.Contains(names, "srv/large") || !slices.Contains(names, "bin/guest") {
		t.Errorf("archive has %v", names)
	}
	if err := n.Machine.RemoveImage(ctx, "box"); err != nil {
		t.Errorf("nobody needs it any more: %v", err)
	}
}

// TestCommitDiskFull makes an image on a disk that is too small.
func TestCommitDiskFull(t *testing.T) {
	ctx := harness.AsOwner
	data := harness.NewDir(t)
	if err := unix.Mount("test", data, "tmpfs", 0, "size=64m,mode=0700"); err != nil {
		t.Skipf("no small disk can be mounted (%v): this needs root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(data, 0); err != nil {
			t.Error(err)
		}
	})
	n := harness.NewNodeIn(t, filepath.Join(data, "data"))
	n.Create("box")
	n.Hold("box", "-value", "zero", "-only", "heap,files")
	n.Guest("box", "write", "/srv/text", "other")
	n.Guest("box", "fill", "/srv/large", "30")
	images := harness.FilesBelow(t, n.Paths.Images())
	for range 2 {
		_, err := n.Machine.Commit(ctx, "box", api.CommitRequest{Name: "large"}, func(api.Progress) {})
		harness.WantCode(t, err, api.CodeNoSpace)
		if left := harness.FilesBelow(t, n.Paths.Images()); !slices.Equal(left, images) {
			t.Fatalf("images were %v, are %v", images, left)
		}
	}
	n.MustHold("box", "zero")
	n.Guest("box", "rm", "/srv/large")
	n.Commit("box", "small")
}
