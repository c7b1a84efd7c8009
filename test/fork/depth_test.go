package fork

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/test/harness"
)

// TestForkChainEnds makes generation after generation, each of which keeps some
// memory of its own, until no more can be made, and does what the error says.
func TestForkChainEnds(t *testing.T) {
	harness.OnlyOnce(t, "lineage does not depend on who starts sandboxes")
	const most = 125 // each generation has a memory file and one of files
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	last := n.Create("").ID
	n.Hold(last, "-value", "0", "-only", "strata")
	depth, limit := 0, error(nil)
	for ; limit == nil && depth <= most; depth++ {
		r, err := n.Machine.Fork(ctx, last, api.ForkRequest{})
		if limit = err; err != nil {
			break
		}
		child := n.Children(r)[0].ID
		n.Destroy(last)
		last = child
		n.Change(last, fmt.Sprint(depth), fmt.Sprint(depth+1))
	}
	harness.WantCode(t, limit, api.CodeLimit)
	if depth != most || !strings.Contains(fmt.Sprint(limit), fmt.Sprintf("%d files", 2*(most+1))) {
		t.Errorf("after %d generations: %v", depth, limit)
	}
	if s, err := n.Machine.Get(ctx, last); err != nil || s.Depth != most {
		t.Errorf("the last one is %+v (%v)", s, err)
	}
	if _, err := n.Machine.Snapshot(ctx, last, api.SnapshotRequest{Name: "memory", Memory: true}); err != nil {
		t.Fatal(err)
	}
	_, err := n.Machine.Restore(ctx, "memory", api.RestoreRequest{})
	harness.WantCode(t, err, api.CodeLimit)
	_, err = n.Machine.Rollback(ctx, last, "memory")
	harness.WantCode(t, err, api.CodeLimit)
	n.MustHold(last, fmt.Sprint(depth))

	n.Reopen() // all its memory files fit the answer to a new daemon as well
	n.MustHold(last, fmt.Sprint(depth))
	if _, err := n.Machine.Snapshot(ctx, last, api.SnapshotRequest{Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.Rollback(ctx, last, "disk"); err != nil {
		t.Fatal(err)
	}
	n.MustHold(last, fmt.Sprint(depth))
	n.MustHold(n.Fork(last, 1)[0].ID, fmt.Sprint(depth))
}

// TestTooManyMappings loads a snapshot whose memory is in more pieces than the
// host lets a process map: every other page is of another generation.
func TestTooManyMappings(t *testing.T) {
	const size = 300 << 20 // bytes: more pages than the default of vm.max_map_count
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err != nil || n > size/snapfile.PageSize {
		t.Skipf("vm.max_map_count is %s, more than this test has pages (%v)", strings.TrimSpace(string(text)), err)
	}
	e := newEngine(t)
	source := e.boot()
	e.exec(source, "start", "-bulk", fmt.Sprint(size>>20), "-only", "bulk", "-value", "0")
	file, frozen := e.freeze(source, "freeze")
	defer file.Close()
	if len(frozen.Generations) != 2 {
		t.Fatalf("generations are %v", frozen.Generations)
	}
	again, err := launch.ReadOnly(source.Memory()) // of which the host makes other mappings
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	e.files["again"] = again
	pages := frozen.Generations[1]
	frozen.Generations = append(frozen.Generations, "again")

	few := shred(t, file, 2<<20, frozen.Generations)
	defer few.Close()
	child := e.load(few, frozen)
	e.exec(child, "ask", "=1")
	child.Kill()

	many := shred(t, file, snapfile.PageSize, frozen.Generations)
	defer many.Close()
	s := e.start()
	files := []*os.File{many, e.image, source.Memory(), e.files[pages], again}
	call := &wire.Call{Op: wire.OpLoad, Load: &wire.Load{Common: wire.Common{ID: "sbx_child", Hostname: "child"}, Generations: frozen.Generations}}
	_, err = s.Call(harness.AsOwner, call, nil, files...)
	harness.WantCode(t, err, api.CodeLimit)
	if !strings.Contains(fmt.Sprint(err), "vm.max_map_count") {
		t.Errorf("it does not say what to do: %v", err)
	}
}

// shred returns a snapshot file like file, whose memory is in pieces of that
// size, by turns of the first and the last generation.
func shred(t *testing.T, file *os.File, size uint64, generations []string) *os.File {
	t.Helper()
	st, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, st.Size())
	if _, err := file.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	s, err := snapfile.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	var table []snapfile.Extent
	for _, x := range s.Table {
		for at := x.Start; at < x.End; at += size {
			table = append(table, snapfile.Extent{Range: snapfile.Range{Start: at, End: min(at+size, x.End)}, Gen: uint32(len(table)%2) * 2})
		}
	}
	s.Table, s.Generations = table, generations
	out, err := launch.NewFile("shredded")
	if err == nil {
		_, err = out.WriteAt(data[snapfile.PagesOffset:snapfile.PagesOffset+s.Pages], snapfile.PagesOffset)
	}
	if err == nil {
		_, err = s.WriteTo(out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
