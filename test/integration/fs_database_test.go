package integration

import (
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/internal/storage/paths"
)

const (
	// envDatabases is the data directory with the image that databasesName names;
	// ramet-test/databases below the user's cache directory if it is not set.
	envDatabases = "RAMET_TEST_DATABASES"
	// envBuild has the image built if it is missing.
	envBuild = "RAMET_TEST_BUILD"
)

// databaseScripts are programs that write to a database and check it.
//
//go:embed testdata/databases
var databaseScripts embed.FS

// databasesBuild is what the image with databases, interpreters and servers is made of.
var databasesBuild = api.ImageBuild{From: "debian", Include: []string{"python3", "git", "postgresql", "nodejs", "nginx", "openssh-server", "curl"}}

// databasesName is the name of that image where it is kept: one that was made of
// something else has another.
func databasesName() string {
	text, err := json.Marshal(databasesBuild)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("databases-%.6x", sha256.Sum256(text))
}

// database is a program that keeps data in files, and what runs its script.
type database struct {
	script, interpreter, user string
	needs                     []string // files of the image
	enough                    int      // steps after which it is well under way
}

func TestFSSQLite(t *testing.T) {
	testDatabase(t, database{script: "sqlite.py", interpreter: "python3", needs: []string{"/usr/bin/python3"}, enough: 150})
}

func TestFSGit(t *testing.T) {
	testDatabase(t, database{script: "git.sh", interpreter: "sh", needs: []string{"/usr/bin/git"}, enough: 5})
}

func TestFSPostgres(t *testing.T) {
	testDatabase(t, database{script: "postgres.sh", interpreter: "sh", user: "postgres", needs: []string{"/usr/lib/postgresql/15/bin/postgres"}, enough: 40})
}

// databaseTest is a node with a sandbox in which a database is written to.
type databaseTest struct {
	*testNode
	database
	rng *rand.Rand
}

// testDatabase forks, snapshots and restores a sandbox while a database is
// written to. Everywhere the database must be whole while its programs go on,
// after they ended and after they were killed, and have all that was written
// before.
func testDatabase(t *testing.T, d database) {
	ctx := asOwner
	x := &databaseTest{newDatabaseNode(t, d.needs), d, seeded(t)}
	if _, err := x.m.Create(ctx, api.CreateRequest{Image: "databases", Name: "box"}); err != nil {
		t.Fatal(err)
	}
	text, err := databaseScripts.ReadFile("testdata/databases/" + d.script)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := x.run("box", api.ExecRequest{Shell: "cat > /srv/" + d.script}, string(text)); err != nil || out.ExitCode != 0 {
		t.Fatalf("write script: %v %+v", err, out)
	}
	x.call("box", "start")
	eventually(t, "the database is written to", func() error {
		if n := x.progress("box"); n < d.enough {
			return fmt.Errorf("%d steps were made", n)
		}
		return nil
	})
	fsRounds(t, 1, func() {
		moment(x.rng, 200*time.Millisecond)
		before := x.progress("box")
		children := x.fork("box", 2)
		goesOn, crashes := children[0].ID, children[1].ID
		grandchild := x.fork(goesOn, 1)[0].ID // of one that is being written to as well
		x.judge(crashes, before, "crash")
		x.destroy(crashes)
		x.judge(goesOn, before, "")
		x.judge(grandchild, before, "crash")
		x.destroy(grandchild)
		x.judge(goesOn, before, "stop")
		x.destroy(goesOn)
	})
	before := x.progress("box")
	if _, err := x.m.Snapshot(ctx, "box", api.SnapshotRequest{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	r, err := x.m.Restore(ctx, "kept", api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	x.judge(x.children(r)[0].ID, before, "crash")
	x.judge("box", before, "stop") // the parent has noticed nothing
	t.Logf("%d steps in the parent", x.progress("box"))
}

// judge checks the database of a sandbox, before if it is not to be ended, or
// after it was.
func (x *databaseTest) judge(ref string, least int, end string) {
	x.t.Helper()
	if end != "" {
		x.call(ref, end)
	}
	x.call(ref, "check")
	if n := x.progress(ref); n < least {
		x.t.Errorf("%s: %d steps are in the database, of %d before the fork", ref, n, least)
	}
}

// call runs the script of the database.
func (x *databaseTest) call(ref, verb string) string {
	x.t.Helper()
	return x.longExec(ref, api.ExecRequest{Argv: []string{x.interpreter, "/srv/" + x.script, verb}, User: x.user, Env: map[string]string{"HOME": "/tmp"}})
}

func (x *databaseTest) progress(ref string) int {
	x.t.Helper()
	out := x.call(ref, "progress")
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		x.t.Fatal(err)
	}
	return n
}

// newDatabaseNode opens a node with the image "databases", or another one that
// has the files.
func newDatabaseNode(t *testing.T, needs []string) *testNode {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv(envAssets) != "" {
		t.Skip("root ran the same: file systems of sandboxes do not depend on who starts them")
	}
	n := newNode(t)
	for _, from := range databaseImages(t) {
		if !n.borrow(from.dir, from.name) {
			continue
		}
		if _, err := n.m.Create(asOwner, api.CreateRequest{Image: "databases", Name: "probe"}); err != nil {
			t.Fatal(err)
		}
		out, err := n.run("probe", api.ExecRequest{Shell: "ls " + strings.Join(needs, " ")}, "")
		if err != nil {
			t.Fatal(err)
		}
		n.destroy("probe")
		if out.ExitCode == 0 {
			return n
		}
	}
	t.Skipf("no image with %s is at hand: with %s=1 one is made, from this machine's Debian mirrors, and kept", strings.Join(needs, " "), envBuild)
	return nil
}

// imageAt is an image in a data directory.
type imageAt struct{ dir, name string }

// databaseImages returns where images with databases may be. The first is made
// if that is asked for; the second is the one that "make demo" leaves,
// the third one that somebody made for the tests of Node.
func databaseImages(t *testing.T) []imageAt {
	t.Helper()
	var all []imageAt
	dir := os.Getenv(envDatabases)
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err == nil {
			dir = filepath.Join(cache, "ramet-test", "databases")
		}
	}
	if dir != "" {
		all = append(all, imageAt{dir, databasesName()})
		if os.Getenv(envBuild) != "" {
			buildDatabases(t, dir)
		}
	}
	if p, err := paths.Find(); err == nil {
		all = append(all, imageAt{p.DataDir(), "python"}, imageAt{p.DataDir(), "node"})
	}
	return all
}

// unbuilt is why the image with databases cannot be made: that is tried once.
var unbuilt error

// buildDatabases makes the image with databases in a data directory, if it is not
// there.
func buildDatabases(t *testing.T, dir string) {
	t.Helper()
	if unbuilt != nil {
		t.Skipf("the image with databases cannot be made: %v", unbuilt)
	}
	p, err := paths.New(filepath.Join(newDir(t), "run"), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{p.MakeRuntime(), p.MakeData()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	n := &testNode{t: t, paths: p, build: "test-" + randomHex(), log: slog.New(slog.DiscardHandler)}
	m, err := machine.Open(asOwner, n.config())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.GetImage(asOwner, databasesName()); err == nil {
		return
	}
	begin := time.Now()
	_, unbuilt = m.CreateImage(asOwner, api.ImageRequest{
		Name:  databasesName(),
		Build: &databasesBuild,
	}, func(api.Progress) {})
	if unbuilt != nil {
		t.Skipf("the image with databases cannot be made: %v", unbuilt)
	}
	t.Logf("made an image with databases in %v, which is kept in %s", time.Since(begin).Round(time.Second), dir)
}

// borrow gives the node an image of another data directory, under the name
// "databases", without copying it.
func (n *testNode) borrow(dir, name string) bool {
	n.t.Helper()
	images := filepath.Join(dir, "images")
	if _, err := os.Stat(filepath.Join(images, "names.json")); errors.Is(err, os.ErrNotExist) {
		return false
	}
	theirs, err := image.Open(images)
	if err != nil {
		n.t.Fatal(err)
	}
	img, err := theirs.Resolve(name)
	if api.CodeOf(err) == api.CodeNotFound {
		return false
	}
	if err != nil {
		n.t.Fatal(err)
	}
	blob, err := theirs.Path(img.ID)
	if err != nil {
		n.t.Fatal(err)
	}
	record, err := os.ReadFile(filepath.Join(images, "records", img.ID+".json"))
	if err != nil {
		n.t.Fatal(err)
	}
	ours := n.paths.Images()
	if err := os.Symlink(blob, filepath.Join(ours, "blobs", filepath.Base(blob))); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ours, "records", img.ID+".json"), record, 0o600); err != nil {
		n.t.Fatal(err)
	}
	store, err := image.Open(ours)
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := store.Tag(img.ID, "databases"); err != nil {
		n.t.Fatal(err)
	}
	return true
}
