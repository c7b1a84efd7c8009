package harness

import (
	"bytes"
	"os"
	"path/filepath"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
)

func (n *Node) importImage(name string) { n.ImportWith(image.Options{Name: name}) }

// ImportWith makes an image of the guest program's archive.
func (n *Node) ImportWith(opt image.Options) {
	n.T.Helper()
	store, err := image.Open(n.Paths.Images())
	if err != nil {
		n.T.Fatal(err)
	}
	f, err := os.Open(filepath.Join(Assets, "image.tar"))
	if err != nil {
		n.T.Fatal(err)
	}
	defer f.Close()
	if _, err := store.ImportTar(AsOwner, f, opt); err != nil {
		n.T.Fatal(err)
	}
}

// Commit makes an image of a sandbox or snapshot.
func (n *Node) Commit(ref, name string) *api.Image {
	n.T.Helper()
	img, err := n.Machine.Commit(AsOwner, ref, api.CommitRequest{Name: name}, func(api.Progress) {})
	if err != nil {
		n.T.Fatalf("commit %s: %v", ref, err)
	}
	return img
}

// Export returns the archive of a sandbox or snapshot.
func (n *Node) Export(ref string, req api.ExportRequest) []byte {
	n.T.Helper()
	var out bytes.Buffer
	if err := n.Machine.Export(AsOwner, ref, req, &out); err != nil {
		n.T.Fatalf("export %s: %v", ref, err)
	}
	return out.Bytes()
}

// CreateFrom makes a sandbox of an image.
func (n *Node) CreateFrom(image, name string) *api.Sandbox {
	n.T.Helper()
	s, err := n.Machine.Create(AsOwner, api.CreateRequest{Image: image, Name: name})
	if err != nil {
		n.T.Fatalf("create %s from %s: %v", name, image, err)
	}
	return s
}

// ImportBytes makes an image of an archive, as a user does.
func (n *Node) ImportBytes(name string, archive []byte) {
	n.T.Helper()
	path := filepath.Join(NewDir(n.T), "archive")
	if err := os.WriteFile(path, archive, 0o600); err != nil {
		n.T.Fatal(err)
	}
	if _, err := n.Machine.CreateImage(AsOwner, api.ImageRequest{Name: name, Path: path}, func(api.Progress) {}); err != nil {
		n.T.Fatalf("import %s: %v", name, err)
	}
}
