package uplink

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"testing"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"ramet.dev/ramet/internal/network/wire"
)

func TestTakeConnections(t *testing.T) {
	b := newSandbox(t)
	data := noise(8 << 20)
	g := &gateway{}
	g.stream = func(fl uint32, _ wire.Message, f *os.File) {
		defer f.Close()
		_, _ = f.Write(data)
		g.finish(fl, f)
		_, _ = io.Copy(io.Discard, f)
	}
	b.connect(g)
	c := b.must(b.dialBound(outside))
	h := sha256.New()
	if _, err := io.CopyN(h, c, 1<<20); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		b.gate.LockIO()
		restore := TakeConnections(context.Background(), b.s, func() []*kernel.SocketRecord { return nil }, nil)
		if n := len(b.s.RegisteredEndpoints()); n != 0 {
			t.Errorf("%d endpoints are left", n)
		}
		restore()
		b.gate.UnlockIO()
		if n := len(outboundOf(b.s)); n != 1 {
			t.Errorf("%d endpoints came back", n)
		}
		if _, err := io.CopyN(h, c, 256<<10); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.Copy(h, c); err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256(data); !bytes.Equal(h.Sum(nil), want[:]) {
		t.Error("other bytes came")
	}
	c.Close()
}
