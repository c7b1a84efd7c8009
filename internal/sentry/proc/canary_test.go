package proc

import (
	"bytes"
	"context"
	"testing"

	"gvisor.dev/gvisor/pkg/state"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/savedtest"
)

func TestCanarySavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&Table{}, &process{}})
}

func TestTableComesBack(t *testing.T) {
	tab := NewTable(nil, gate.New(idleKernel{}))
	for pid := range int32(2) {
		p := &process{pid: 10 + pid, command: "x", keep: blockSize, ended: 1, status: 3 << 8}
		p.ready(tab)
		tab.add(p)
	}
	write(t, tab.list[1].out, wire.Stdout, "some output")
	outs := tab.Freeze()
	var buf bytes.Buffer
	if _, err := state.Save(context.Background(), &buf, tab); err != nil {
		t.Fatal(err)
	}
	var back Table
	if _, err := state.Load(context.Background(), &buf, &back); err != nil {
		t.Fatal(err)
	}
	if err := back.Thaw(nil, tab.gate, outs[:1]); err == nil {
		t.Error("the output of one process is enough for two")
	}
	if err := back.Thaw(nil, tab.gate, outs); err != nil {
		t.Fatal(err)
	}
	p, err := back.find(11)
	if err != nil || !p.inherited || p.status != 3<<8 || p.command != "x" {
		t.Fatalf("process %+v, %v came back", p, err)
	}
	if got := readAll(p.out, 0); got != "0:some output " {
		t.Errorf("its output came back as %q", got)
	}
	back.forget(p)
	if _, err := back.find(11); err == nil || len(back.list) != 1 {
		t.Errorf("it is still there, one of %d", len(back.list))
	}
}
