package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// envKills is how often each test that kills processes at random moments does so,
// instead of the few times that there is time for in every run.
const envKills = "RAMET_TEST_KILLS"

// kills returns how often a test kills something: count times, those of an ordinary
// user, who does the same again, ordinary times, or as often as envKills says.
func kills(t testing.TB, count, ordinary int) int {
	t.Helper()
	if text := os.Getenv(envKills); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%q is not a number from 1", envKills, text)
		}
		return n
	}
	if os.Geteuid() != 0 {
		return ordinary
	}
	return count
}

// TestMixedLoadSurvivesKills kills a daemon at random moments in which several users
// create, fork, snapshot, restore, roll back, use, pause, hibernate, wake and destroy
// sandboxes over its interface. The next one must have everything that it
// acknowledged, whole, and nothing else: no sandbox that nobody asked for, no
// process, file, control group or record without a sandbox. Each snapshot that is
// ready must load, with the contents that it was taken of.
//
// The environment variable RAMET_TEST_KILLS says how often; 100 takes some minutes.
// A run is repeated by its envSeed, as far as the moments can be.
func TestMixedLoadSurvivesKills(t *testing.T) {
	rng := seeded(t)
	n := newNode(t)
	n.create("base")
	n.hold("base", "-value", "zero", "-only", "heap,bulk,files,child,pipe", "-bulk", "1")
	x := newMixed(n)
	x.add(&making{names: []string{"base"}, value: "zero"})
	rounds, loaded := kills(t, 8, 4), 0
	for round := range rounds {
		n.close()
		x.load(rng)
		n.open()
		loaded += n.checkMixed(x)
		if round == rounds-1 || round%10 == 9 {
			n.checkEmptied(x)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	t.Logf("%d kills; %d times a snapshot was loaded; acknowledged: %v, cut off: %v", rounds, loaded, x.done, x.torn)
	if len(x.torn) == 0 {
		t.Error("nothing was under way when the daemon was killed: the test proves nothing")
	}
}

// load has several users use a daemon until that is killed.
func (x *mixed) load(rng *rand.Rand) {
	x.node.t.Helper()
	const users = 4
	n := x.node
	p := startVictim(n.t, victim{Runtime: n.paths.RuntimeDir(), Data: n.paths.DataDir(), Engine: n.build, Seed: rng.Uint64(), Serves: true})
	if rng.IntN(8) == 0 { // while it takes over what the last one left
		moment(rng, 100*time.Millisecond)
		p.kill()
		return
	}
	if line := p.next(); line != "serving" {
		n.t.Fatalf("the daemon says %q", line)
	}
	c, err := client.New("unix:" + n.paths.Socket())
	if err != nil {
		n.t.Fatal(err)
	}
	defer c.Close()
	x.client = c
	x.killed.Store(false)
	ctx, cancel := context.WithTimeout(asOwner, patience)
	defer cancel()
	var wg sync.WaitGroup
	for range users {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
		wg.Add(1)
		go func() {
			defer wg.Done()
			x.use(ctx, rng)
		}()
	}
	moment(rng, 1500*time.Millisecond)
	x.killed.Store(true)
	p.kill()
	wg.Wait()
}

// serveOwn serves a node's interface until the process is killed.
func serveOwn(m *machine.Machine, socket string) error {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("serving")
	return http.Serve(l, rest.New(rest.Config{Service: m, Identify: apitest.Owner, Version: "test"}))
}

// checkMixed checks that everything is there that the users of x were told of, and
// nothing else. It returns how many snapshots it has loaded.
func (n *testNode) checkMixed(x *mixed) (loaded int) {
	n.t.Helper()
	ctx := asOwner
	list, err := n.m.List(ctx, api.ListFilter{})
	if err != nil {
		n.t.Fatal(err)
	}
	snaps, err := n.m.Snapshots(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := x.settle(list, snaps); err != nil {
		n.t.Fatal(err)
	}
	if _, _, stray := n.recorded(); len(stray) > 0 {
		n.t.Errorf("recorded for nobody: %v", stray)
	}
	n.checkOwned()
	for _, b := range x.boxes {
		if b.states[0] == api.StatePaused {
			if _, err := n.m.Resume(ctx, b.name); err != nil {
				n.t.Error(err)
			}
		}
		b.values, b.notes = n.mustBeOneOf(b.name, b.values, b.notes)
		b.runs()
	}
	for _, s := range snaps {
		if s.State != api.SnapshotReady {
			if files := filesBelow(n.t, filepath.Join(n.paths.Snapshots(), s.ID)); s.State == api.SnapshotFailed && len(files) != 0 {
				n.t.Errorf("a failed snapshot has files %v", files)
			}
			continue
		}
		r, err := n.m.Restore(ctx, s.ID, api.RestoreRequest{})
		if err != nil {
			n.t.Errorf("snapshot %s is ready: %v", s.Name, err)
			continue
		}
		loaded++
		child, is := n.children(r)[0].ID, x.shots[s.Name]
		n.mustBeOneOf(child, []string{is.value}, []string{is.note})
		n.destroy(child)
		if _, err := n.m.VerifySnapshot(ctx, s.ID); err != nil {
			n.t.Error(err)
		}
	}
	for _, s := range slices.Backward(snaps) {
		if s.State == api.SnapshotFailed {
			if err := n.m.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
				n.t.Error(err)
			}
		}
	}
	n.checkOwned()
	return loaded
}

// mustBeOneOf checks that the holder and the file in ref are among what is possible,
// and returns what they are.
func (n *testNode) mustBeOneOf(ref string, values, notes []string) (value, text []string) {
	n.t.Helper()
	value, text = []string{""}, []string{""}
	if values[0] != "" {
		r, err := n.ask(ref)
		if err != nil {
			n.t.Fatal(err)
		}
		for _, v := range values {
			if r.check(ref, "", v) == nil {
				value[0] = v
			}
		}
	}
	if out, err := n.exec(ref, "cat", note); err != nil {
		n.t.Fatal(err)
	} else if out.ExitCode == 0 {
		text[0] = out.stdout.String()
	}
	if !slices.Contains(values, value[0]) || !slices.Contains(notes, text[0]) {
		n.t.Errorf("%s holds %q and has the file %q, and should have one of %q and %q", ref, value, text, values, notes)
	}
	return value, text
}

// checkOwned checks that each process, socket, log, control group and file of the
// node belongs to a sandbox, a snapshot or the pool, and that those have theirs.
func (n *testNode) checkOwned() {
	n.t.Helper()
	eventually(n.t, "processes, files and groups", func() error {
		awake, kept, _ := n.recorded()
		sentries := n.sentries()
		if len(sentries) != awake+n.pool {
			return fmt.Errorf("%d sentries for %d sandboxes that run and %d in the pool", len(sentries), awake, n.pool)
		}
		for _, pid := range n.processes() {
			if session := sessionOf(pid); session != 0 && !slices.Contains(sentries, session) && !isZygote(pid) {
				return fmt.Errorf("process %d belongs to no sentry", pid)
			}
		}
		f := slices.DeleteFunc(filesBelow(n.t, n.paths.Sandboxes()), func(path string) bool { return filepath.Base(path) == "zygote.log" })
		if len(f) != 2*len(sentries) { // a socket and a log each
			return fmt.Errorf("%d sentries have files %v", len(sentries), f)
		}
		groups := slices.DeleteFunc(n.groups(), func(dir string) bool { return !strings.Contains(dir, "/pool_") })
		if each := len(groups) / max(1, len(sentries)); len(groups) != each*len(sentries) { // v1 has one for each controller
			return fmt.Errorf("%d sentries have control groups %v", len(sentries), groups)
		}
		entries, err := os.ReadDir(n.paths.Snapshots())
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !slices.Contains(kept, e.Name()) {
				return fmt.Errorf("%s is no snapshot", e.Name())
			}
		}
		for _, id := range kept {
			if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == id }) {
				return fmt.Errorf("snapshot %s has no files", id)
			}
		}
		for _, f := range filesBelow(n.t, n.paths.Files()) {
			return fmt.Errorf("the file of pages %s has a name", f)
		}
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err == nil && (strings.Contains(string(mounts), n.paths.DataDir()) || strings.Contains(string(mounts), n.paths.RuntimeDir())) {
			err = fmt.Errorf("something is mounted: %s", mounts)
		}
		return err
	})
}

// recorded returns, from the records, how many sandboxes have a sentry, and the
// snapshots that have files. Stray are records that nobody needs: moments from which
// neither a sandbox nor a snapshot comes (a daemon keeps them that has a snapshot open,
// and the next one does not), and snapshots that are deleted or one sandbox's own, which
// nothing refers to.
func (n *testNode) recorded() (awake int, onDisk, stray []string) {
	n.t.Helper()
	db := n.records()
	defer db.Close()
	each := func(table string, row func(id string, doc []byte) error) {
		rows, err := db.Query("SELECT id, doc FROM " + table)
		if err != nil {
			n.t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			var doc []byte
			if err = rows.Scan(&id, &doc); err == nil {
				err = row(id, doc)
			}
			if err != nil {
				n.t.Fatal(err)
			}
		}
		if err := rows.Err(); err != nil {
			n.t.Fatal(err)
		}
	}
	parents, needed, referred, hidden := map[string]string{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	each("freezes", func(id string, doc []byte) error {
		var rec struct{ Parent string }
		err := json.Unmarshal(doc, &rec)
		parents[id] = rec.Parent
		return err
	})
	need := func(id string) {
		for ; id != "" && !needed[id]; id = parents[id] {
			needed[id] = true
		}
	}
	each("sandboxes", func(_ string, doc []byte) error {
		var rec struct {
			Sandbox                   api.Sandbox
			Freeze, Hibernation, Base string
		}
		err := json.Unmarshal(doc, &rec)
		need(rec.Freeze)
		referred[rec.Hibernation], referred[rec.Base] = true, true
		if s := rec.Sandbox.State; s == api.StateRunning || s == api.StatePaused {
			awake++
		}
		return err
	})
	each("snapshots", func(id string, doc []byte) error {
		var rec struct {
			Snapshot api.Snapshot
			Private  string
			Needs    []string
		}
		err := json.Unmarshal(doc, &rec)
		need(id)
		hidden[id] = rec.Private != "" || rec.Snapshot.State == api.SnapshotDeleted
		for _, other := range rec.Needs {
			referred[other] = true
		}
		if s := rec.Snapshot; s.OnDisk && (s.State == api.SnapshotReady || s.State == api.SnapshotDeleted) {
			onDisk = append(onDisk, id)
		}
		return err
	})
	for id := range parents {
		if !needed[id] {
			stray = append(stray, "moment "+id)
		}
	}
	for id, unseen := range hidden {
		if unseen && !referred[id] {
			stray = append(stray, "snapshot "+id)
		}
	}
	return awake, onDisk, stray
}

// checkEmptied removes all but the base, and checks that nothing is kept in memory or
// recorded for anything else.
func (n *testNode) checkEmptied(x *mixed) {
	n.t.Helper()
	n.destroyAllBut("base")
	base := x.boxes["base"]
	x.boxes, x.shots = map[string]*told{"base": base}, map[string]*shot{}
	n.checkOwned()
	if u := n.m.Usage(); u.Pins != 0 {
		n.t.Errorf("%d moments are kept in memory for nobody", u.Pins)
	}
	for table, most := range map[string]int{"sandboxes": 1, "activity": 1, "grants": 0, "timelines": 0} {
		if got := n.count(table); got > most {
			n.t.Errorf("there are %d records of %s for one sandbox", got, table)
		}
	}
}
