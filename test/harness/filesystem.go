package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
)

// fsTar is the archive of the image "fs": that of "box", and below /lower the
// files that the cases of "guest fs" want to find.
var fsTar = sync.OnceValues(func() (string, error) {
	files, err := exec.Command(GuestProgram(), "fs", "tar", "lower").Output()
	if err != nil {
		return "", fmt.Errorf("guest fs tar: %w", err)
	}
	box, err := os.ReadFile(filepath.Join(Assets, "image.tar"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(base, "fs.tar")
	return path, os.WriteFile(path, append(files, box...), 0o644)
})

// NewFSNode opens a node with the image "fs".
func NewFSNode(t testing.TB) *Node {
	t.Helper()
	OnlyOnce(t, "file systems of sandboxes do not depend on who starts them")
	path, err := fsTar()
	if err != nil {
		t.Fatal(err)
	}
	n := NewNode(t)
	store, err := image.Open(n.Paths.Images())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := store.ImportTar(AsOwner, f, image.Options{Name: "fs"}); err != nil {
		t.Fatal(err)
	}
	return n
}

// CreateFS makes a sandbox of the image "fs" in which diskMiB may be written, or
// anything if it is 0.
func (n *Node) CreateFS(name string, diskMiB int64) {
	n.T.Helper()
	_, err := n.Machine.Create(AsOwner, api.CreateRequest{Image: "fs", Name: name, Limits: api.Limits{DiskMiB: diskMiB}})
	if err != nil {
		n.T.Fatalf("create: %v", err)
	}
}
