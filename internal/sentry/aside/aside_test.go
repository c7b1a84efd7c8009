package aside

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/safemem"
	"gvisor.dev/gvisor/pkg/sentry/arch/fpu"
	"gvisor.dev/gvisor/pkg/sentry/kernel/pipe"
	"gvisor.dev/gvisor/pkg/state"

	"ramet.dev/ramet/api"
)

func TestCanaryPipe(t *testing.T) {
	for name, want := range map[string]reflect.Type{
		"buf": reflect.TypeFor[[]byte](), "off": reflect.TypeFor[int64](), "size": reflect.TypeFor[int64](),
		"bufBlocks": reflect.TypeFor[[2]safemem.Block](), "bufBlockSeq": reflect.TypeFor[safemem.BlockSeq](),
	} {
		if f, ok := reflect.TypeFor[pipe.Pipe]().FieldByName(name); !ok || f.Type != want {
			t.Errorf("a pipe has no field %s of type %v any more: bufferOf finds its contents there", name, want)
		}
	}
}

// TestPipeComesBack saves a pipe without its contents and gives them to what is loaded.
func TestPipeComesBack(t *testing.T) {
	for _, c := range []struct {
		ring      string
		off, size int64
		want      string
	}{
		{"", 0, 0, ""},
		{"abcdefgh", 3, 0, ""},
		{"abcdefgh", 2, 4, "cdef"},
		{"abcdefgh", 5, 3, "fgh"},
		{"abcdefgh", 6, 5, "ghabc"},
		{"abcdefgh", 7, 8, "habcdefg"},
	} {
		p := pipe.NewPipe(false, pipe.MinimumPipeSize)
		b := bufferOf(p)
		*b.buf, *b.off, *b.size = []byte(c.ring), c.off, c.size
		var a State
		restore := a.takeContents(p)
		contents := a.contents[0]
		if contents != c.want || a.pipes[0] != p {
			t.Errorf("%d bytes from %d of the ring %q are %q, not %q", c.size, c.off, c.ring, contents, c.want)
		}
		var saved bytes.Buffer
		if _, err := state.Save(context.Background(), &saved, p); err != nil {
			t.Fatal(err)
		}
		if saved.Len() > 400 {
			t.Errorf("it is saved as %d bytes, with what it holds", saved.Len())
		}
		if restore(); string(*b.buf) != c.ring || *b.off != c.off || *b.size != c.size {
			t.Errorf("of %d bytes from %d of %q, %d from %d of %q are left", c.size, c.off, c.ring, *b.size, *b.off, *b.buf)
		}
		back := pipe.NewPipe(false, pipe.MinimumPipeSize)
		if _, err := state.Load(context.Background(), &saved, back); err != nil {
			t.Fatal(err)
		}
		b = bufferOf(back)
		if b.fill(contents + "x") {
			t.Errorf("a pipe of %d bytes takes one more", c.size)
		}
		if !b.fill(contents) || b.contents() != c.want {
			t.Errorf("%q comes back as %q", c.want, b.contents())
		}
		read := make([]byte, c.size)
		n, err := safemem.CopySeq(safemem.BlockSeqOf(safemem.BlockFromSafeSlice(read)), *b.seq)
		if err != nil || int64(n) != c.size || string(read) != c.want {
			t.Errorf("readers get %q, %v of %q", read[:n], err, c.want)
		}
		if c.size > 0 && b.fill(contents) {
			t.Error("a pipe that has contents takes others")
		}
	}
}

// TestRegistersComeBack loads registers as a child does: what nobody has used, what was
// set aside, and what no processor has.
func TestRegistersComeBack(t *testing.T) {
	initRegisters()
	const inVectors = 200 // an offset in what vector registers are saved in
	was := fpu.NewState()
	copy(was[inVectors:], "sixteen bytes of")
	var a State
	registers := was
	restore := a.takeRegisters(nil, &registers)
	loadUnused(t, &registers, len(was))
	if bytes.Contains(registers, []byte("sixteen")) {
		t.Error("they are saved with what they hold")
	}
	if err := setRegisters(&registers, a.registers[0]); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(registers, was) {
		t.Error("other registers come back")
	}
	if restore(); &registers[0] != &was[0] || len(registers) != len(was) {
		t.Error("others are put back than were taken")
	}
	if err := setRegisters(&registers, unknownRegisters(was)); api.CodeOf(err) != api.CodeUnsupported {
		t.Errorf("registers that this processor lacks: %v", err)
	}
}

func TestDetachedComesBack(t *testing.T) {
	a := State{Detached: []string{"/proc", "/sys"}}
	var saved bytes.Buffer
	if _, err := state.Save(context.Background(), &saved, &a); err != nil {
		t.Fatal(err)
	}
	var back State
	if _, err := state.Load(context.Background(), &saved, &back); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(back.Detached, a.Detached) {
		t.Errorf("%v came back", back.Detached)
	}
}

func TestSideStateIsChecked(t *testing.T) {
	for _, a := range []*State{{registers: []string{"x"}}, {contents: []string{"x"}}, {pipes: []*pipe.Pipe{nil}, contents: []string{""}}, {}} {
		if err := a.Restore(nil); api.CodeOf(err) != api.CodeCorrupt {
			t.Errorf("%+v is restored: %v", a, err)
		}
	}
}
