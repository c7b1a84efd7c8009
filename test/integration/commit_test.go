package integration

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
)

// commit makes an image of a sandbox or snapshot.
func (n *testNode) commit(ref, name string) *api.Image {
	n.t.Helper()
	img, err := n.m.Commit(asOwner, ref, api.CommitRequest{Name: name}, func(api.Progress) {})
	if err != nil {
		n.t.Fatalf("commit %s: %v", ref, err)
	}
	return img
}

func (n *testNode) export(ref string, req api.ExportRequest) []byte {
	n.t.Helper()
	var out bytes.Buffer
	if err := n.m.Export(asOwner, ref, req, &out); err != nil {
		n.t.Fatalf("export %s: %v", ref, err)
	}
	return out.Bytes()
}

// createFrom makes a sandbox of an image.
func (n *testNode) createFrom(image, name string) *api.Sandbox {
	n.t.Helper()
	s, err := n.m.Create(asOwner, api.CreateRequest{Image: image, Name: name})
	if err != nil {
		n.t.Fatalf("create %s from %s: %v", name, image, err)
	}
	return s
}

var asLayer = api.ExportRequest{Format: api.ExportLayer}

// importBytes makes an image of an archive, as a user does.
func (n *testNode) importBytes(name string, archive []byte) {
	n.t.Helper()
	path := filepath.Join(newDir(n.t), "archive")
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.m.CreateImage(asOwner, api.ImageRequest{Name: name, Path: path}, func(api.Progress) {}); err != nil {
		n.t.Fatalf("import %s: %v", name, err)
	}
}

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
	ctx := asOwner
	n := newNode(t)
	config := image.Config{Env: []string{"A=b"}, Cmd: []string{"guest"}, WorkingDir: "/srv", User: "worker"}
	n.importWith(image.Options{Name: "set", Config: &config})
	if _, err := n.m.Create(ctx, api.CreateRequest{Image: "set", Name: "parent", Env: map[string]string{"SECRET": "x"}}); err != nil {
		t.Fatal(err)
	}
	if left := tarNames(t, n.export("parent", asLayer)); len(left) > 0 {
		t.Errorf("an untouched sandbox has changes: %v", left)
	}
	asRoot := func(ref string, args ...string) {
		t.Helper()
		out, err := n.run(ref, api.ExecRequest{Argv: append([]string{"guest"}, args...), User: "root"}, "")
		if err != nil || out.ExitCode != 0 {
			t.Fatalf("%s: %v: %v %s", ref, args, err, out.stderr.String())
		}
	}
	asRoot("parent", "write", "/srv/changed", "other\n", "600")
	asRoot("parent", "write", "/srv/new/deep/file", "hello\n")
	asRoot("parent", "rm", "/srv/deleted")
	asRoot("parent", "mv", "/srv/text", "/srv/moved")
	asRoot("parent", "write", "/tmp/left-out", "")
	asRoot("parent", "write", "/etc/hostname", "mine")
	layer := tarNames(t, n.export("parent", asLayer))
	if want := []string{"srv/changed", "srv/.wh.deleted", "srv/moved", "srv/new/deep/file", "srv/.wh.text"}; !slices.Equal(layer, want) {
		t.Errorf("layer has %v, want %v", layer, want)
	}
	img, err := n.m.Commit(ctx, "parent", api.CommitRequest{Name: "one:2", Message: "a try"}, func(api.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(img.Env, config.Env) || !slices.Equal(img.Cmd, config.Cmd) || img.Cwd != "/srv" || img.User != "worker" || img.Source != "commit of parent: a try" {
		t.Errorf("image %+v", img)
	}
	for name, memory := range map[string]bool{"in-memory": true, "on-disk": false} {
		if _, err := n.m.Snapshot(ctx, "parent", api.SnapshotRequest{Name: name, Memory: memory}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := n.m.Fork(ctx, "parent", api.ForkRequest{Names: []string{"child"}})
	if err != nil {
		t.Fatal(err)
	}
	n.children(r)
	asRoot("parent", "rm", "/srv/new") // later: none of what follows has it
	// The same files are the same image, whoever has them.
	for _, ref := range []string{"child", "in-memory", "on-disk"} {
		if same := n.commit(ref, "from-"+ref); same.ID != img.ID {
			t.Errorf("image of %s is %s, not %s", ref, same.ID, img.ID)
		}
	}
	// Of a snapshot the same bytes come each time.
	whole := api.ExportRequest{Format: api.ExportOCI, Gzip: true}
	if !bytes.Equal(n.export("on-disk", whole), n.export("on-disk", whole)) {
		t.Error("two archives of one snapshot differ")
	}
	for i, ref := range []string{"child", "in-memory", "on-disk"} {
		n.importBytes(fmt.Sprint("imported-", i), n.export(ref, api.ExportRequest{Format: api.ExportOCI, Gzip: i == 0}))
	}
	for _, from := range []string{"one:2", "imported-0", "imported-1", "imported-2"} {
		s := n.createFrom(from, strings.ReplaceAll(from, ":", "-"))
		if s.Env["A"] != "b" || s.Env["SECRET"] != "" || s.Cwd != "/srv" || s.User != "worker" {
			t.Errorf("sandbox of %s: %+v", from, s)
		}
		out, err := n.run(s.ID, api.ExecRequest{Argv: []string{"guest", "cat", "/srv/new/deep/file", "/srv/changed", "/srv/moved", "/srv/kept"}, User: "root"}, "")
		if err != nil || out.stdout.String() != "hello\nother\nno programkept\n" {
			t.Errorf("in %s: %q %v %s", from, out.stdout.String(), err, out.stderr.String())
		}
		for _, gone := range []string{"/srv/deleted", "/srv/text", "/tmp/left-out"} {
			if out, err := n.run(s.ID, api.ExecRequest{Argv: []string{"guest", "cat", gone}}, ""); err != nil || out.ExitCode == 0 {
				t.Errorf("in %s there is %s (%v)", from, gone, err)
			}
		}
		if left := tarNames(t, n.export(s.ID, asLayer)); len(left) > 0 {
			t.Errorf("an untouched sandbox of %s has changes: %v", from, left)
		}
	}
}

// TestCommitOfWhatChanges packs a sandbox in which files are replaced all the time,
// in one order: what is packed must be one moment.
func TestCommitOfWhatChanges(t *testing.T) {
	ctx, cancel := context.WithCancel(asOwner)
	n := newNode(t)
	n.create("parent")
	var command sync.WaitGroup
	defer command.Wait()
	defer cancel()
	g := &gate{open: make(chan struct{}), waiting: make(chan struct{})}
	close(g.open)
	command.Go(func() {
		_, err := n.m.Exec(ctx, "parent", api.ExecRequest{Argv: []string{"guest", "churn", "/srv/churn"}}, api.ExecIO{Stdout: g, Stderr: io.Discard})
		wantCode(t, err, api.CodeCanceled)
	})
	<-g.waiting
	// Of the seven names one is missing at any moment, or is being made.
	alone := func() error {
		found := map[string]bool{}
		for _, name := range tarNames(t, n.export("parent", api.ExportRequest{Format: api.ExportTar})) {
			if rest, ok := strings.CutPrefix(name, "srv/churn/"); ok {
				found[strings.TrimSuffix(rest, "/deep/file")] = true
			}
		}
		if len(found) < 6 {
			return fmt.Errorf("only %v are there", found)
		}
		return nil
	}
	eventually(t, "seven names", alone)
	for i := range 20 {
		if i%5 == 0 {
			n.commit("parent", fmt.Sprint("c", i))
		}
		if err := alone(); err != nil {
			t.Error(err)
		}
	}
}

// TestCommitIsTheSandbox does random operations in a sandbox of an image and looks
// at all files, in it and in sandboxes of what was made of it.
func TestCommitIsTheSandbox(t *testing.T) {
	f := newFuzz(t)
	f.without += ",far" // holes take time and space in what is packed
	b := f.start()
	dir := fmt.Sprintf("/lower/fuzz.%d", f.runs%8)
	if strings.Contains(f.without, "image") {
		dir = "/var/fuzz"
	}
	for generation := range 2 {
		b.work(1200)
		b = b.fork()
		want := b.files()
		packed := fmt.Sprint("commit-", generation)
		f.commit(b.ref, packed)
		f.importBytes(packed+"-oci", f.export(b.ref, api.ExportRequest{Format: api.ExportOCI}))
		f.importBytes(packed+"-tar", f.export(b.ref, api.ExportRequest{Format: api.ExportTar, Gzip: true}))
		for _, from := range []string{packed + "-tar", packed + "-oci", packed} {
			ref := f.createFrom(from, "of-"+from).ID
			f.long(ref, "fs", "fuzz", "start", "-without", f.without, "-dir", dir)
			b = &fuzzBox{f: f, ref: ref}
			if got := b.files(); got != want {
				t.Fatalf("sandbox of %s:\n%s", from, differing(want, got))
			}
		}
	}
}

// files is what the operator sees of all files that have a name.
func (b *fuzzBox) files() string {
	b.f.t.Helper()
	steps := b.do(fuzzRequest{Ops: []fuzzOp{{"op": "walk"}}, Log: true}).Steps
	var named strings.Builder
	for line := range strings.Lines(steps[len(steps)-1].Result) {
		if !strings.HasPrefix(line, "slot ") {
			named.WriteString(line)
		}
	}
	if named.Len() == 0 {
		b.f.t.Fatal("there are no files")
	}
	return named.String()
}

// differing returns the lines that only one of two texts has.
func differing(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	var out []string
	for _, line := range a {
		if !slices.Contains(b, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out[:min(len(out), 40)], "\n")
}

func TestCommitErrors(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	nothing := func(api.Progress) {}
	for _, c := range []struct {
		ref, name string
		code      api.Code
	}{{"nobody", "x", api.CodeNotFound}, {"box", "No Name", api.CodeInvalid}, {"box", "", api.CodeInvalid}, {"snap_aaaaaaaaaaaaaaaa", "x", api.CodeNotFound}} {
		_, err := n.m.Commit(ctx, c.ref, api.CommitRequest{Name: c.name}, nothing)
		wantCode(t, err, c.code)
	}
	wantCode(t, n.m.Export(ctx, "nobody", asLayer, io.Discard), api.CodeNotFound)
	wantCode(t, n.m.Export(ctx, "box", api.ExportRequest{Format: "zip"}, io.Discard), api.CodeInvalid)
	broken := errors.New("nobody reads")
	if err := n.m.Export(ctx, "box", api.ExportRequest{Format: api.ExportTar}, failingWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("with a broken writer: %v", err)
	}
	n.guest("box", "write", "/srv/.wh.x", "")
	wantCode(t, n.m.Export(ctx, "box", asLayer, io.Discard), api.CodeUnsupported)
	// A paused one has files, too, and one name moves from image to image.
	if _, err := n.m.Pause(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	first := n.commit("box", "name")
	if _, err := n.m.Resume(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	n.guest("box", "write", "/srv/more", "")
	if _, err := n.m.Commit(ctx, "box", api.CommitRequest{Name: "name"}, nothing); api.CodeOf(err) != api.CodeNameTaken || !strings.Contains(err.Error(), first.ID) {
		t.Errorf("a name that %s has is taken: %v", first.ID, err)
	}
	if img, err := n.m.GetImage(ctx, "name"); err != nil || img.ID != first.ID {
		t.Errorf("the name is %+v's, %v", img, err)
	}
	second, err := n.m.Commit(ctx, "box", api.CommitRequest{Name: "name", Replace: true}, nothing)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID == second.ID || len(second.Names) != 1 {
		t.Errorf("images %+v and %+v", first, second)
	}
	// It is an image like any other.
	s := n.createFrom("name", "user")
	wantCode(t, n.m.RemoveImage(ctx, "name"), api.CodeConflict)
	n.destroy(s.ID)
	for _, ref := range []string{"name", first.ID} {
		if err := n.m.RemoveImage(ctx, ref); err != nil {
			t.Error(err)
		}
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// TestPackedMeanwhile destroys a sandbox and removes its image while it is packed.
func TestPackedMeanwhile(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	n.guest("box", "fill", "/srv/large", "8")
	g := &gate{open: make(chan struct{}), waiting: make(chan struct{})}
	var out bytes.Buffer
	done := inBackground(func() error {
		return n.m.Export(ctx, "box", api.ExportRequest{Format: api.ExportTar}, io.MultiWriter(g, &out))
	})
	<-g.waiting
	n.destroy("box")
	wantCode(t, n.m.RemoveImage(ctx, "box"), api.CodeConflict)
	close(g.open)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if names := tarNames(t, out.Bytes()); !slices.Contains(names, "srv/large") || !slices.Contains(names, "bin/guest") {
		t.Errorf("archive has %v", names)
	}
	if err := n.m.RemoveImage(ctx, "box"); err != nil {
		t.Errorf("nobody needs it any more: %v", err)
	}
}

// TestCommitDiskFull makes an image on a disk that is too small.
func TestCommitDiskFull(t *testing.T) {
	ctx := asOwner
	data := newDir(t)
	if err := unix.Mount("test", data, "tmpfs", 0, "size=64m,mode=0700"); err != nil {
		t.Skipf("no small disk can be mounted (%v): this needs root", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(data, 0); err != nil {
			t.Error(err)
		}
	})
	n := newNodeIn(t, filepath.Join(data, "data"))
	n.create("box")
	n.hold("box", "-value", "zero", "-only", "heap,files")
	n.guest("box", "write", "/srv/text", "other")
	n.guest("box", "fill", "/srv/large", "30")
	images := filesBelow(t, n.paths.Images())
	for range 2 {
		_, err := n.m.Commit(ctx, "box", api.CommitRequest{Name: "large"}, func(api.Progress) {})
		wantCode(t, err, api.CodeNoSpace)
		if left := filesBelow(t, n.paths.Images()); !slices.Equal(left, images) {
			t.Fatalf("images were %v, are %v", images, left)
		}
	}
	n.mustHold("box", "zero")
	n.guest("box", "rm", "/srv/large")
	n.commit("box", "small")
}
