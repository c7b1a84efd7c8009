package fs

import (
	"embed"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// databaseScripts are programs that write to a database and check it.
//
//go:embed testdata/databases
var databaseScripts embed.FS

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
	*harness.Node
	database
	rng *rand.Rand
}

// testDatabase forks, snapshots and restores a sandbox while a database is
// written to. Everywhere the database must be whole while its programs go on,
// after they ended and after they were killed, and have all that was written
// before.
func testDatabase(t *testing.T, d database) {
	ctx := harness.AsOwner
	x := &databaseTest{harness.NewDatabaseNode(t, d.needs), d, harness.Seeded(t)}
	if _, err := x.Machine.Create(ctx, api.CreateRequest{Image: "databases", Name: "box"}); err != nil {
		t.Fatal(err)
	}
	text, err := databaseScripts.ReadFile("testdata/databases/" + d.script)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := x.Run("box", api.ExecRequest{Shell: "cat > /srv/" + d.script}, string(text)); err != nil || out.ExitCode != 0 {
		t.Fatalf("write script: %v %+v", err, out)
	}
	x.call("box", "start")
	harness.Eventually(t, "the database is written to", func() error {
		if n := x.progress("box"); n < d.enough {
			return fmt.Errorf("%d steps were made", n)
		}
		return nil
	})
	harness.Rounds(t, 1, func() {
		harness.RandomPause(x.rng, 200*time.Millisecond)
		before := x.progress("box")
		children := x.Fork("box", 2)
		goesOn, crashes := children[0].ID, children[1].ID
		grandchild := x.Fork(goesOn, 1)[0].ID // of one that is being written to as well
		x.judge(crashes, before, "crash")
		x.Destroy(crashes)
		x.judge(goesOn, before, "")
		x.judge(grandchild, before, "crash")
		x.Destroy(grandchild)
		x.judge(goesOn, before, "stop")
		x.Destroy(goesOn)
	})
	before := x.progress("box")
	if _, err := x.Machine.Snapshot(ctx, "box", api.SnapshotRequest{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	r, err := x.Machine.Restore(ctx, "kept", api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	x.judge(x.Children(r)[0].ID, before, "crash")
	x.judge("box", before, "stop") // the parent has noticed nothing
	t.Logf("%d steps in the parent", x.progress("box"))
}

// judge checks the database of a sandbox, before if it is not to be ended, or
// after it was.
func (x *databaseTest) judge(ref string, least int, end string) {
	x.T.Helper()
	if end != "" {
		x.call(ref, end)
	}
	x.call(ref, "check")
	if n := x.progress(ref); n < least {
		x.T.Errorf("%s: %d steps are in the database, of %d before the fork", ref, n, least)
	}
}

// call runs the script of the database.
func (x *databaseTest) call(ref, verb string) string {
	x.T.Helper()
	return x.LongExec(ref, api.ExecRequest{Argv: []string{x.interpreter, "/srv/" + x.script, verb}, User: x.user, Env: map[string]string{"HOME": "/tmp"}})
}

func (x *databaseTest) progress(ref string) int {
	x.T.Helper()
	out := x.call(ref, "progress")
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		x.T.Fatal(err)
	}
	return n
}
