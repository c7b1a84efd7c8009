package harness

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/image/debian"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/internal/storage/paths"
)

const (
	// envDatabases is the data directory with the image that databasesName names;
	// ramet-test/databases below the user's cache directory if it is not set.
	envDatabases = "RAMET_TEST_DATABASES"
	// EnvBuild has the image built if it is missing.
	EnvBuild = "RAMET_TEST_BUILD"
)

// databasesBuild is what the image with databases, interpreters and servers is made of.
var databasesBuild = api.ImageBuild{From: "debian", Include: []string{"python3", "git", "postgresql", "nodejs", "nginx", "openssh-server", "curl", "python3-requests", "apt", "debian-archive-keyring", "python3-pip", "ca-certificates"}}

// databasesName is the name of that image where it is kept: one that was made of
// something else, or by other steps, has another.
func databasesName() string {
	text, err := json.Marshal([]any{databasesBuild, debian.ConfigureSteps()})
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("databases-%.6x", sha256.Sum256(text))
}

// NewDatabaseNode opens a node with the image "databases", or another one that
// has the files.
func NewDatabaseNode(t *testing.T, needs []string) *Node {
	t.Helper()
	OnlyOnce(t, "file systems of sandboxes do not depend on who starts them")
	n := NewNode(t)
	n.UseDatabases(t, needs)
	return n
}

// UseDatabases gives an open node the image "databases", or another one that has the files.
func (n *Node) UseDatabases(t *testing.T, needs []string) {
	t.Helper()
	for _, from := range databaseImages(t) {
		if !n.borrow(from.dir, from.name) {
			continue
		}
		if _, err := n.Machine.Create(AsOwner, api.CreateRequest{Image: "databases", Name: "probe"}); err != nil {
			t.Fatal(err)
		}
		out, err := n.Run("probe", api.ExecRequest{Shell: "ls " + strings.Join(needs, " ")}, "")
		if err != nil {
			t.Fatal(err)
		}
		n.Destroy("probe")
		if out.ExitCode == 0 {
			return
		}
	}
	t.Skipf("no image with %s is at hand: with %s=1 one is made, from this machine's Debian mirrors, and kept", strings.Join(needs, " "), EnvBuild)
}

// shared is where the tests that run as an ordinary user find the image "databases".
func shared() string { return filepath.Join(Assets, "databases") }

// ShareDatabases copies the image "databases" of the node to where the tests of the suite find it
// that run as an ordinary user.
func (n *Node) ShareDatabases() {
	n.T.Helper()
	ours, err := image.Open(n.Paths.Images())
	if err != nil {
		n.T.Fatal(err)
	}
	img, err := ours.Resolve("databases")
	if err != nil {
		n.T.Fatal(err)
	}
	blob, err := ours.Path(img.ID)
	if err != nil {
		n.T.Fatal(err)
	}
	images := filepath.Join(shared(), "images")
	theirs, err := image.Open(images)
	if err != nil {
		n.T.Fatal(err)
	}
	record := img.ID + ".json"
	for from, to := range map[string]string{blob: filepath.Join(images, "blobs", filepath.Base(blob)), filepath.Join(n.Paths.Images(), "records", record): filepath.Join(images, "records", record)} {
		if err := copyFile(from, to); err != nil {
			n.T.Fatal(err)
		}
	}
	if _, err := theirs.Tag(img.ID, databasesName()); err != nil {
		n.T.Fatal(err)
	}
	if err := filepath.WalkDir(shared(), func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, OrdinaryUser, OrdinaryUser)
	}); err != nil {
		n.T.Fatal(err)
	}
}

// imageAt is an image in a data directory.
type imageAt struct{ dir, name string }

// databaseImages returns where images with databases may be. The first is made
// if that is asked for; the second is the one that "make demo" leaves,
// the third one that somebody made for the tests of Node.
func databaseImages(t *testing.T) []imageAt {
	t.Helper()
	all := []imageAt{{shared(), databasesName()}}
	if dir := databasesDir(); dir != "" {
		all = append(all, imageAt{dir, databasesName()})
		if err := MakeDatabases(); err != nil {
			t.Skipf("the image with databases cannot be made: %v", err)
		}
	}
	if p, err := paths.Find(); err == nil {
		all = append(all, imageAt{p.DataDir(), "python"}, imageAt{p.DataDir(), "node"})
	}
	return all
}

// databasesDir is the data directory with the image, "" if there is none.
func databasesDir() string {
	dir := os.Getenv(envDatabases)
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(cache, "ramet-test", "databases")
	}
	return dir
}

// MakeDatabases makes the image with databases if that is asked for and it is not there. That is tried
// once. A suite whose tests reach no mirror calls it before.
var MakeDatabases = sync.OnceValue(func() error {
	if os.Getenv(EnvBuild) == "" || databasesDir() == "" {
		return nil
	}
	return makeDatabases(databasesDir())
})

// makeDatabases makes the image with databases in a data directory, if it is not there.
func makeDatabases(dir string) error {
	runtime, err := os.MkdirTemp("", "ramet-db-") // short, as sockets lie in it
	if err != nil {
		return err
	}
	defer os.RemoveAll(runtime)
	p, err := paths.New(filepath.Join(runtime, "run"), dir)
	if err != nil {
		return err
	}
	for _, err := range []error{p.MakeRuntime(), p.MakeData()} {
		if err != nil {
			return err
		}
	}
	unlock, err := lock(dir + ".lock") // suites run side by side
	if err != nil {
		return err
	}
	defer unlock()
	n := &Node{Paths: p, Build: "test-" + RandomHex(), Log: slog.New(slog.DiscardHandler)}
	m, err := machine.Open(AsOwner, n.Config())
	if err != nil {
		return err
	}
	defer m.Close()
	if _, err := m.GetImage(AsOwner, databasesName()); err == nil {
		return nil
	}
	_, err = m.CreateImage(AsOwner, api.ImageRequest{Name: databasesName(), Build: &databasesBuild}, func(api.Progress) {})
	return err
}

// lock waits until no other process has the lock that a file stands for, and takes it.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// borrow gives the node an image of another data directory, under the name
// "databases", without copying it.
func (n *Node) borrow(dir, name string) bool {
	n.T.Helper()
	images := filepath.Join(dir, "images")
	if _, err := os.Stat(filepath.Join(images, "names.json")); errors.Is(err, os.ErrNotExist) {
		return false
	}
	theirs, err := image.Open(images)
	if err != nil {
		n.T.Fatal(err)
	}
	img, err := theirs.Resolve(name)
	if api.CodeOf(err) == api.CodeNotFound {
		return false
	}
	if err != nil {
		n.T.Fatal(err)
	}
	blob, err := theirs.Path(img.ID)
	if err != nil {
		n.T.Fatal(err)
	}
	record, err := os.ReadFile(filepath.Join(images, "records", img.ID+".json"))
	if err != nil {
		n.T.Fatal(err)
	}
	ours := n.Paths.Images()
	if err := os.Symlink(blob, filepath.Join(ours, "blobs", filepath.Base(blob))); err != nil {
		n.T.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ours, "records", img.ID+".json"), record, 0o600); err != nil {
		n.T.Fatal(err)
	}
	store, err := image.Open(ours)
	if err != nil {
		n.T.Fatal(err)
	}
	if _, err := store.Tag(img.ID, "databases"); err != nil {
		n.T.Fatal(err)
	}
	return true
}
