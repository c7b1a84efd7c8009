package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/artefact"
	"ramet.dev/ramet/internal/node"
	who "ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/test/harness"
)

// packed returns a snapshot as it travels.
func packed(t *testing.T, n *harness.Node, ref string, req api.PackRequest) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := n.Machine.Pack(harness.AsOwner, ref, req, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unpacked(t *testing.T, n *harness.Node, b []byte, name string) *api.Snapshot {
	t.Helper()
	s, err := n.Machine.Unpack(harness.AsOwner, bytes.NewReader(b), api.UnpackRequest{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// another opens a node that is of the build that a node is of.
func another(t *testing.T, of string) *harness.Node {
	t.Helper()
	n := harness.NewClosedNode(t, filepath.Join(harness.NewDir(t), "data"))
	if n.Build = of; of == "" {
		n.Build = "gvisor of another time"
	}
	n.Open()
	t.Cleanup(n.Finish)
	return n
}

// filesIn returns the files of an archive by name.
func filesIn(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := in.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPortableSnapshots moves a chain of two snapshots to another node, in both orders of
// deletion there.
func TestPortableSnapshots(t *testing.T) {
	ctx := harness.AsOwner
	from := harness.NewClosedNode(t, filepath.Join(harness.NewDir(t), "data"))
	from.Open()
	from.Create("base")
	from.Hold("base", "-value", "one", "-only", held)
	from.Snapshot("base", api.SnapshotRequest{Name: "one"})
	from.Change("base", "one", "two")
	two := from.Snapshot("base", api.SnapshotRequest{Name: "two"})
	if len(two.DependsOn) == 0 {
		t.Fatal("the second snapshot depends on nothing")
	}
	first, second := packed(t, from, "one", api.PackRequest{}), packed(t, from, "two", api.PackRequest{})
	if again := packed(t, from, "two", api.PackRequest{}); !bytes.Equal(again, second) {
		t.Error("the same snapshot was packed into other bytes")
	}
	from.Finish()
	had, more := filesIn(t, first), 0
	for name, b := range filesIn(t, second) {
		if _, ok := had[name]; !ok {
			more += len(b)
		}
	}
	if whole := len(first); more > whole/4 {
		t.Errorf("the second snapshot has %d bytes that the first, of %d bytes, has not", more, whole)
	}

	to := another(t, from.Build)
	one := unpacked(t, to, first, "")
	if one.Name != "one" || one.State != api.SnapshotReady || one.Origin == nil || len(one.DependsOn) != 0 {
		t.Errorf("the first is %+v", one)
	}
	s := unpacked(t, to, second, "")
	if !slices.Equal(s.DependsOn, []string{one.ID}) || s.SizeBytes >= one.SizeBytes {
		t.Errorf("the second has %d bytes and depends on %v, the first has %d", s.SizeBytes, s.DependsOn, one.SizeBytes)
	}
	_, err := to.Machine.Unpack(ctx, bytes.NewReader(second), api.UnpackRequest{})
	harness.WantCode(t, err, api.CodeNameTaken)
	for _, again := range []bool{false, true} {
		if again {
			to.Reopen()
		}
		to.RestoredHolds("one", "one")
		to.RestoredHolds("two", "two")
		for _, ref := range []string{"one", "two"} {
			if _, err := to.Machine.VerifySnapshot(ctx, ref); err != nil {
				t.Error(err)
			}
		}
	}
	// What is packed again has the same digest, wherever it was in between.
	if again := packed(t, to, "two", api.PackRequest{}); !bytes.Equal(again, second) {
		t.Error("a snapshot that was unpacked is packed into other bytes")
	}
	// It is the base of further snapshots, as one made here is.
	r, err := to.Machine.Restore(ctx, "two", api.RestoreRequest{Names: []string{"kid"}})
	if err != nil {
		t.Fatal(err)
	}
	to.Children(r)
	to.Change("kid", "two", "three")
	if three := to.Snapshot("kid", api.SnapshotRequest{Name: "three"}); !slices.Contains(three.DependsOn, s.ID) {
		t.Errorf("a snapshot of what was restored depends on %v", three.DependsOn)
	}
	harness.WantCode(t, to.Machine.DeleteSnapshot(ctx, "one", api.SnapshotDeletion{}), api.CodeConflict)
	if err := to.Machine.DeleteSnapshot(ctx, "one", api.SnapshotDeletion{Flatten: true}); err != nil {
		t.Fatal(err)
	}
	to.Reopen()
	to.RestoredHolds("two", "two")
	to.RestoredHolds("three", "three")
	to.MustHold("kid", "three")
	to.Destroy("kid")
	for _, ref := range []string{"three", "two"} {
		if err := to.Machine.DeleteSnapshot(ctx, ref, api.SnapshotDeletion{}); err != nil {
			t.Error(err)
		}
	}
	if files := harness.FilesBelow(t, to.Paths.Snapshots()); len(files) != 0 {
		t.Errorf("left over: %v", files)
	}
}

// TestPortableImage leaves the image out, and unpacks where it is and where it is not.
func TestPortableImage(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("base")
	n.Snapshot("base", api.SnapshotRequest{Name: "s"})
	whole, small := packed(t, n, "s", api.PackRequest{}), packed(t, n, "s", api.PackRequest{WithoutImage: true})
	if len(small) >= len(whole) {
		t.Errorf("without the image it has %d bytes, with it %d", len(small), len(whole))
	}
	contents, err := n.Machine.PackContents(ctx, "s")
	if err != nil || len(contents.Parts) < 3 || contents.Parts[0].Kind != "state" {
		t.Errorf("%+v, %v", contents, err)
	}
	unpacked(t, n, small, "again")
	n.DestroyAll()
	images, err := n.Machine.Images(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		if err := n.Machine.RemoveImage(ctx, img.ID); err != nil {
			t.Fatal(err)
		}
	}
	_, err = n.Machine.Unpack(ctx, bytes.NewReader(small), api.UnpackRequest{})
	harness.WantCode(t, err, api.CodeNotFound)
	unpacked(t, n, whole, "")
	r, err := n.Machine.Restore(ctx, "s", api.RestoreRequest{Names: []string{"kid"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	n.Guest("kid", "true")
}

// TestUnpackLeavesNothing cuts an archive off at many places, changes bytes of it and cancels
// in the middle: no snapshot, image or file is left.
func TestUnpackLeavesNothing(t *testing.T) {
	ctx := harness.AsOwner
	from := harness.NewClosedNode(t, filepath.Join(harness.NewDir(t), "data"))
	from.Open()
	from.Create("base")
	from.Hold("base", "-value", "one", "-only", held)
	from.Snapshot("base", api.SnapshotRequest{Name: "s"})
	whole := packed(t, from, "s", api.PackRequest{})
	from.Finish()
	n := another(t, from.Build)
	if err := n.Machine.RemoveImage(ctx, "box"); err != nil {
		t.Fatal(err)
	}
	nothing := func(what string) {
		t.Helper()
		snaps, err := n.Machine.Snapshots(ctx)
		if err != nil || len(snaps) > 0 {
			t.Errorf("after %s: snapshots %v, %v", what, snaps, err)
		}
		images, err := n.Machine.Images(ctx)
		if err != nil || len(images) > 0 {
			t.Errorf("after %s: images %v, %v", what, images, err)
		}
		if files := harness.FilesBelow(t, n.Paths.Snapshots()); len(files) != 0 {
			t.Errorf("after %s: %v", what, files)
		}
	}
	nothing("no unpack")
	for i := 1; i < 12; i++ {
		_, err := n.Machine.Unpack(ctx, bytes.NewReader(whole[:len(whole)*i/12]), api.UnpackRequest{})
		if harness.WantCode(t, err, api.CodeCorrupt); err == nil {
			break
		}
		changed := slices.Clone(whole)
		changed[len(whole)*i/12+1000] ^= 1
		if _, err = n.Machine.Unpack(ctx, bytes.NewReader(changed), api.UnpackRequest{}); err == nil {
			t.Errorf("byte %d was changed, and nobody noticed", len(whole)*i/12+1000)
			break
		}
		nothing("damage")
	}
	gone, cancel := context.WithCancelCause(ctx)
	cause := errors.New("the client is gone")
	_, err := n.Machine.Unpack(gone, io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), readerFunc(func([]byte) (int, error) {
		cancel(cause)
		return 0, cause
	})), api.UnpackRequest{})
	if !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
	nothing("a cancel")
	unpacked(t, n, whole, "")
	n.RestoredHolds("s", "one")
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestUnpackRefusesOtherMachines has archives for other engines and processors.
func TestUnpackRefusesOtherMachines(t *testing.T) {
	from := harness.NewClosedNode(t, filepath.Join(harness.NewDir(t), "data"))
	from.Open()
	from.Create("base")
	from.Snapshot("base", api.SnapshotRequest{Name: "s"})
	whole := packed(t, from, "s", api.PackRequest{})
	from.Finish()
	other := another(t, "")
	_, err := other.Machine.Unpack(harness.AsOwner, bytes.NewReader(whole), api.UnpackRequest{})
	if harness.WantCode(t, err, api.CodeUnsupported); err != nil && !strings.Contains(err.Error(), "engine") {
		t.Error(err)
	}
	if entries, err := os.ReadDir(other.Paths.Snapshots()); err != nil || len(entries) > 0 {
		t.Errorf("left over: %v, %v", entries, err)
	}
}

// relabelled changes the documents of an archive, and makes all digests right again.
func relabelled(t *testing.T, whole []byte, change func(*artefact.Config, *artefact.Manifest)) []byte {
	t.Helper()
	var spool bytes.Buffer
	a, err := artefact.ReadArchive(t.Context(), bytes.NewReader(whole), artefact.ReadOptions{
		Spool: spoolOf{&spool}, Judge: func(*artefact.Head) (map[string]bool, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	c, m := *a.Head.Config, *a.Head.Manifest
	c.Parts, m.Layers = slices.Clone(c.Parts), slices.Clone(m.Layers)
	change(&c, &m)
	config, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m.Config.Digest, m.Config.Size = artefact.Digest(config), int64(len(config))
	manifest, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := artefact.NewArchiveWriter(&out, manifest, config, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range a.Head.Manifest.Layers {
		r, err := a.Open(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(d, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// spoolOf is a spool in memory.
type spoolOf struct{ *bytes.Buffer }

func (s spoolOf) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(s.Bytes()).ReadAt(p, off)
}

// contentOf changes the digest that a part or the image is known by, in all documents.
func contentOf(c *artefact.Config, m *artefact.Manifest, content *artefact.Content, digest string) {
	changed := artefact.Content{Digest: digest, Size: content.Size}
	for i := range m.Layers {
		for key, of := range m.Layers[i].Annotations {
			if of == content.Key() {
				m.Layers[i].Annotations = map[string]string{key: changed.Key()}
			}
		}
	}
	content.Digest = digest
}

// TestUnpackRefusesLies has archives whose blobs match their digests, and are not what the
// configuration says.
func TestUnpackRefusesLies(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "one", "-only", held)
	n.Snapshot("base", api.SnapshotRequest{Name: "s"})
	whole := packed(t, n, "s", api.PackRequest{})
	n.DestroyAll()
	other := "sha256:" + strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		change func(*artefact.Config, *artefact.Manifest)
		code   api.Code
	}{
		"pages of a part":   {func(c *artefact.Config, m *artefact.Manifest) { contentOf(c, m, &c.Parts[0].Content, other) }, api.CodeCorrupt},
		"order of parts":    {func(c *artefact.Config, _ *artefact.Manifest) { slices.Reverse(c.Parts) }, api.CodeCorrupt},
		"length of a part":  {func(c *artefact.Config, _ *artefact.Manifest) { c.Parts[0].Size = 1 << 40 }, api.CodeCorrupt},
		"state":             {func(c *artefact.Config, _ *artefact.Manifest) { c.State.Digest = other }, api.CodeCorrupt},
		"length of a state": {func(c *artefact.Config, _ *artefact.Manifest) { c.State.Size-- }, api.CodeCorrupt},
		"huge state":        {func(c *artefact.Config, _ *artefact.Manifest) { c.State.Size = artefact.MaxStateBytes }, ""},
		"image":             {func(c *artefact.Config, m *artefact.Manifest) { contentOf(c, m, &c.Image.Content, other) }, api.CodeCorrupt},
		"id of the image":   {func(c *artefact.Config, _ *artefact.Manifest) { c.Image.ID = api.NewID(api.KindImage) }, api.CodeCorrupt},
		"config of image": {func(c *artefact.Config, m *artefact.Manifest) {
			c.Image.Config.Env = []string{"A=b"}
			contentOf(c, m, &c.Image.Content, c.Image.Digest)
		}, ""},
		"environment":  {func(c *artefact.Config, _ *artefact.Manifest) { c.Sandbox.Env = map[string]string{"a=b": ""} }, api.CodeCorrupt},
		"placeholder":  {func(c *artefact.Config, _ *artefact.Manifest) { c.Sandbox.Placeholders = map[string]string{"A": "x"} }, api.CodeCorrupt},
		"host name":    {func(c *artefact.Config, _ *artefact.Manifest) { c.Sandbox.Hostname = "a b" }, api.CodeCorrupt},
		"limits":       {func(c *artefact.Config, _ *artefact.Manifest) { c.Sandbox.Limits.MemoryMiB = -1 }, api.CodeInvalid},
		"architecture": {func(c *artefact.Config, _ *artefact.Manifest) { c.Processor.Architecture = "riscv64" }, api.CodeUnsupported},
		"processor":    {func(c *artefact.Config, _ *artefact.Manifest) { c.Processor.Features = []string{"flux"} }, api.CodeUnsupported},
	} {
		_, err := n.Machine.Unpack(ctx, bytes.NewReader(relabelled(t, whole, c.change)), api.UnpackRequest{})
		switch {
		case name == "config of image": // the image is here, and its own configuration counts
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			n.DestroyAll()
		case err == nil:
			t.Errorf("%s: accepted", name)
			n.DestroyAll()
		case c.code != "" && api.CodeOf(err) != c.code:
			t.Errorf("%s: %s: %v", name, api.CodeOf(err), err)
		}
		if files := harness.FilesBelow(t, n.Paths.Snapshots()); len(files) != 0 {
			t.Errorf("%s: left over: %v", name, files)
		}
		if _, err := n.Machine.GetImage(ctx, "box"); err != nil {
			t.Fatalf("%s: the image that was here: %v", name, err)
		}
	}
	unpacked(t, n, whole, "")
	n.RestoredHolds("s", "one")
}

// TestPortableTenants unpacks one archive for two tenants: what one of them has is not used
// for the other.
func TestPortableTenants(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	n.Snapshot("base", api.SnapshotRequest{Name: "s"})
	whole, small := packed(t, n, "s", api.PackRequest{}), packed(t, n, "s", api.PackRequest{WithoutImage: true})
	acme := harness.AsTenant("acme")
	_, err := n.Machine.Unpack(acme, bytes.NewReader(small), api.UnpackRequest{})
	harness.WantCode(t, err, api.CodeNotFound) // the image is here, but not theirs
	s, err := n.Machine.Unpack(acme, bytes.NewReader(whole), api.UnpackRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.DependsOn) > 0 || s.Tenant != "acme" {
		t.Errorf("it is %+v", s)
	}
	if _, err := n.Machine.GetSnapshot(acme, "s"); err != nil {
		t.Error(err)
	}
	if own := unpacked(t, n, whole, "own"); len(own.DependsOn) != 1 {
		t.Errorf("for its own tenant it depends on %v", own.DependsOn)
	}
	bound := who.With(harness.AsOwner, who.Caller{Tenant: "acme", Scope: api.ScopeAdmin, Tree: s.Sandbox})
	_, err = n.Machine.Unpack(bound, bytes.NewReader(whole), api.UnpackRequest{Name: "more"})
	harness.WantCode(t, err, api.CodeForbidden)
	if err := n.Machine.DeleteSnapshot(acme, s.ID, api.SnapshotDeletion{}); err != nil {
		t.Error(err)
	}
}

// TestTrust unpacks snapshots that are signed, by whom it is asked and by nobody, also where the
// daemon itself demands a signature.
func TestTrust(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("base")
	n.Snapshot("base", api.SnapshotRequest{Name: "s"})
	plain, signed := packed(t, n, "s", api.PackRequest{}), packed(t, n, "s", api.PackRequest{Sign: true})
	mine, err := n.Machine.SigningKey(ctx)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := n.Machine.SigningKey(harness.AsTenant("acme"))
	if err != nil || theirs.Key == mine.Key {
		t.Fatalf("another tenant has the key %v, %v", theirs, err)
	}
	unpack := func(b []byte, code api.Code, keys ...string) {
		t.Helper()
		s, err := n.Machine.Unpack(ctx, bytes.NewReader(b), api.UnpackRequest{Name: "copy", Trust: keys})
		if code != "" {
			harness.WantCode(t, err, code)
		} else if err != nil {
			t.Error(err)
		}
		if err == nil {
			if err := n.Machine.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
				t.Error(err)
			}
		}
	}
	unpack(plain, "")
	unpack(signed, "")
	unpack(signed, "", theirs.Key, mine.Key)
	unpack(signed, api.CodeForbidden, theirs.Key)
	unpack(plain, api.CodeForbidden, mine.Key)
	unpack(signed, api.CodeInvalid, "no key")
	other := relabelled(t, signed, func(c *artefact.Config, _ *artefact.Manifest) { c.Name = "other" }) // which drops the signature
	unpack(other, api.CodeForbidden, mine.Key)
	forged := bytes.Clone(signed)
	at := bytes.Index(forged, []byte(mine.Key+":")) + len(mine.Key) + 5
	forged[at] = map[bool]byte{true: 'B', false: 'A'}[forged[at] == 'A']
	unpack(forged, api.CodeForbidden, mine.Key)
	n.Configure = func(c *node.Config) { c.Trust = []string{mine.Key} }
	n.Reopen()
	unpack(plain, api.CodeForbidden)
	unpack(signed, "")
	unpack(signed, api.CodeForbidden, theirs.Key)
	bound := who.With(harness.AsOwner, who.Caller{Tenant: who.DefaultTenant, Scope: api.ScopeAdmin, Tree: n.Get("base").ID})
	harness.WantCode(t, n.Machine.Pack(bound, "s", api.PackRequest{Sign: true}, io.Discard), api.CodeForbidden)
	if again, err := n.Machine.SigningKey(ctx); err != nil || again.Key != mine.Key {
		t.Errorf("after a restart the key is another: %v", err)
	}
}

// TestAForeignSnapshotDecidesNothing unpacks a snapshot with a network and metadata: a network is used where a trusted
// key has signed the snapshot, and rules about access never see the metadata.
func TestAForeignSnapshotDecidesNothing(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	rule, err := api.ParseNetworkRule("allow", "192.0.2.1:443")
	if err != nil {
		t.Fatal(err)
	}
	net := &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: []api.NetworkRule{rule}}}
	if _, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "base", Network: net, Metadata: map[string]string{"role": "db"}}); err != nil {
		t.Fatal(err)
	}
	n.Snapshot("base", api.SnapshotRequest{Name: "s"})
	signed := packed(t, n, "s", api.PackRequest{Sign: true})
	mine, err := n.Machine.SigningKey(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, trust := range map[string][]string{"stranger": nil, "friend": {mine.Key}} {
		s, err := n.Machine.Unpack(ctx, bytes.NewReader(signed), api.UnpackRequest{Name: name, Trust: trust})
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Labels()) != 0 || s.Metadata["role"] != "db" {
			t.Errorf("%s: rules see %v of %v", name, s.Labels(), s.Metadata)
		}
		r, err := n.Machine.Restore(ctx, name, api.RestoreRequest{Count: 1})
		if err != nil || r.Children[0].Error != nil {
			t.Fatalf("%s: %v, %+v", name, err, r)
		}
		child := n.Get(r.Children[0].Sandbox.ID)
		if has := child.Network != nil && len(child.Network.Allow) == 1; has != (trust != nil) {
			t.Errorf("%s: the network is %+v", name, child.Network)
		}
		if len(child.Labels()) != 0 {
			t.Errorf("%s: rules see %v of its sandbox", name, child.Labels())
		}
	}
}
