package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/polltest"
)

func TestFromSandboxToSandbox(t *testing.T) {
	w := newWorld(t, nil)
	web := w.newSentry("web", document(t, `{"allow": ["sandbox=db"]}`))
	db := w.newSentry("db", document(t, `{"accept": ["sandbox=web:5432"]}`))
	stranger := w.register(Registration{ID: "strange", Name: "strange", Tenant: "other", Policy: policy.Spec{Document: document(t, `{"allow": ["sandbox=db"]}`)}})
	addrs, _ := web.lookUp("db.sandbox")
	if len(addrs) != 1 {
		t.Fatalf("addresses %v", addrs)
	}
	address := addrs[0] + ":5432"
	if _, rcode := stranger.lookUp("db.sandbox"); rcode != dns.RcodeNameError {
		t.Errorf("another tenant finds it: %s", dns.RcodeToString[rcode])
	}
	if _, code := stranger.dial(wire.TCP, address); code != wire.CodeRefused {
		t.Errorf("another tenant reaches it: %v", code)
	}
	if _, code := web.dial(wire.TCP, addrs[0]+":22"); code != wire.CodeRefused {
		t.Errorf("a port that it does not accept: %v", code)
	}
	webAddr, _ := db.lookUp("web.sandbox")
	if _, code := db.dial(wire.TCP, webAddr[0]+":80"); code != wire.CodeRefused {
		t.Errorf("the other direction: %v", code)
	}
	for _, c := range []struct {
		from, host string
		protocol   policy.Protocol
		port       uint16
		want       api.NetworkTestResult
	}{
		{"web", "db.sandbox", policy.TCP, 5432, api.NetworkTestResult{Allowed: true, Rule: "sandbox=db"}},
		{"web", "DB.sandbox.", policy.TCP, 5432, api.NetworkTestResult{Allowed: true, Rule: "sandbox=db"}},
		{"web", "db.sandbox", policy.TCP, 22, api.NetworkTestResult{Rule: "the other sandbox does not accept it: no rule names the sandbox"}},
		{"web", "db.sandbox", policy.UDP, 5432, api.NetworkTestResult{Rule: "other sandboxes are reached over TCP only"}},
		{"db", "web.sandbox", policy.TCP, 80, api.NetworkTestResult{Rule: "no rule names the sandbox"}},
		{"strange", "db.sandbox", policy.TCP, 5432, api.NetworkTestResult{Rule: "no sandbox of the tenant that has a network has this name"}},
	} {
		if r, err := w.Test(c.from, c.host, c.protocol, c.port); err != nil || r != c.want {
			t.Errorf("a test from %s to %s, port %d, says %+v, %v", c.from, c.host, c.port, r, err)
		}
	}
	// Nobody listens.
	refused := make(chan wire.Code, 1)
	go func() { _, code := web.dial(wire.TCP, address); refused <- code }()
	m := <-db.inbound
	m.file.Close()
	db.send(wire.Message{Kind: wire.Refused, Flow: m.Flow})
	if code := <-refused; code != wire.CodeRefused {
		t.Errorf("nobody listens: %v", code)
	}
	for _, end := range []wire.Kind{wire.Closed, wire.Reset} {
		opened := make(chan *guest, 1)
		go func() { g, _ := web.dial(wire.TCP, address); opened <- g }()
		m = <-db.inbound
		if m.Port != 5432 {
			t.Errorf("delivered to port %d", m.Port)
		}
		db.send(wire.Message{Kind: wire.Accepted, Flow: m.Flow})
		g := <-opened
		if g == nil {
			t.Fatal("it was not opened")
		}
		done := make(chan error, 1)
		go func() { _, err := io.Copy(m.file, m.file); done <- err }()
		if err := g.trip("words"); err != nil {
			t.Error(err)
		}
		if end == wire.Closed {
			g.shut()
			if k := db.get(m.Flow).Kind; k != wire.Closed {
				t.Errorf("the source's end is told as %v", k)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			m.file.Close()
		} else {
			m.file.Close()
			<-done
		}
		db.send(wire.Message{Kind: end, Flow: m.Flow})
		if k := g.last(); k != end {
			t.Errorf("the target's %v is told as %v", end, k)
		}
		g.Close()
	}
	polltest.Eventually(t, 10*time.Second, "all flows end", func() bool { return w.Stats().Flows == 0 })
}

func TestLimitOfConnections(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.9:1", echoes)
	doc := rules(t, "192.0.2.9:1")
	doc.Limits.Connections = 2
	s := w.newSentry("one", doc)
	first := s.open("192.0.2.9:1")
	s.open("192.0.2.9:1")
	if _, code := s.dial(wire.TCP, "192.0.2.9:1"); code != wire.CodeRefused {
		t.Errorf("one too many: %v", code)
	}
	first.Close()
	s.send(wire.Message{Kind: wire.Closed, Flow: first.flow})
	polltest.Eventually(t, 10*time.Second, "a connection is free", func() bool { return w.Stats().Flows == 1 })
	s.open("192.0.2.9:1")
}

// TestARateThatComesLater limits a flow that is open.
func TestARateThatComesLater(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.9:1", echoes)
	doc := rules(t, "192.0.2.9:1")
	s := w.newSentry("one", doc)
	g := s.open("192.0.2.9:1")
	if err := g.trip("fast"); err != nil {
		t.Fatal(err)
	}
	doc.Limits.RateMbit = 8 // a megabyte per second
	if err := w.Replace(Registration{ID: "one", Policy: policy.Spec{Document: doc}}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 10 {
		if err := g.trip(strings.Repeat("x", 64<<10)); err != nil {
			t.Fatal(err)
		}
	}
	// The burst passes at once, in each direction.
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("640 KiB took %v", took)
	}
}

// TestSentriesThatDoNotKeepToTheProtocol end themselves and nobody else.
func TestSentriesThatDoNotKeepToTheProtocol(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.9:1", echoes)
	good, bad := w.newSentry("good", rules(t, "192.0.2.9:1")), w.newSentry("bad", rules(t, "192.0.2.9:1"))
	g := good.open("192.0.2.9:1")
	b := bad.open("192.0.2.9:1")
	for _, k := range []wire.Kind{wire.Closed, wire.Reset, wire.Accepted, wire.Refused} { // of flows that are not there
		flow := uint32(4711)
		if k == wire.Accepted || k == wire.Refused {
			flow |= wire.FirstInbound
		}
		bad.send(wire.Message{Kind: k, Flow: flow})
	}
	if err := b.trip("still there"); err != nil {
		t.Fatal(err)
	}
	bad.send(wire.Message{Kind: wire.Dial, Protocol: wire.TCP, Flow: b.flow, Address: netip.MustParseAddr("192.0.2.9"), Port: 1})
	<-bad.done
	polltest.Eventually(t, 10*time.Second, "the sandbox is gone", func() bool { return slices.Equal(w.IDs(), []string{"good"}) })
	if err := g.trip("words"); err != nil {
		t.Error(err)
	}
	if n := w.Stats().ProtocolErrors; n != 1 {
		t.Errorf("%d errors are counted", n)
	}
}

func TestASandboxIsTakenOnce(t *testing.T) {
	w := newWorld(t, nil)
	s := w.newSentry("one", rules(t))
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if err := w.Add(Registration{ID: "one"}, theirs); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("the same sandbox once more: %v", err)
	}
	if err := w.Remove("one"); err != nil {
		t.Fatal(err)
	}
	<-s.done
	if err := w.Remove("one"); !errors.Is(err, ErrUnknown) {
		t.Errorf("remove it once more: %v", err)
	}
}

// TestFlowsThatOpenWhileTheirSandboxEnds end with it, although the guest lives on and keeps its end.
func TestFlowsThatOpenWhileTheirSandboxEnds(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.9:1", echoes)
	for i := range 100 {
		s := w.newSentry(fmt.Sprint("box ", i), rules(t, "192.0.2.9:1"))
		g := s.open("192.0.2.9:1")
		done := make(chan error, 1)
		go func() { done <- w.Remove(s.id) }()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(10 * time.Second):
			g.Close() // so that it ends
			t.Fatalf("sandbox %d does not end: its flow is open", i)
		}
	}
}

// TestFloods has one sandbox send what it can, and never read, while another one works.
func TestFloods(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.9:1", echoes)
	good := w.newSentry("good", rules(t, "192.0.2.9:1"))
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(Registration{ID: "bad", Policy: policy.Spec{Document: rules(t, "192.0.2.9:1")}}, theirs); err != nil {
		t.Fatal(err)
	}
	bad, err := wire.SentryChannel(ours)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint32(0); ; i++ {
			m := &wire.Message{Kind: wire.Question, Flow: i, Payload: []byte("no question")}
			if i%2 == 0 {
				m = &wire.Message{Kind: wire.Dial, Protocol: wire.TCP, Flow: i, Address: netip.MustParseAddr("192.0.2.9"), Port: 2}
			}
			if bad.Send(m, -1) != nil {
				return
			}
		}
	})
	g := good.open("192.0.2.9:1")
	for range 200 {
		if err := g.trip("words"); err != nil {
			t.Fatal(err)
		}
	}
	if n := runtime.NumGoroutine(); n > 3*api1024+1000 {
		t.Errorf("%d goroutines", n)
	}
	bad.Close()
	wg.Wait()
	polltest.Eventually(t, 10*time.Second, "the sandbox is gone", func() bool { return len(w.IDs()) == 1 })
}

const api1024 = policy.DefaultConnections

// TestIdleSandboxesCostLittle measures 500 of them.
func TestIdleSandboxesCostLittle(t *testing.T) {
	const n = 500
	w := newWorld(t, nil)
	doc := rules(t, "a.example.org", "*.b.example.org", "10.1.0.0/16:5432")
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before, files := heap(), openFiles(t)
	for i := range n {
		ours, theirs, err := wire.Pair()
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(Registration{ID: fmt.Sprint("sandbox", i), Policy: policy.Spec{Document: doc}}, theirs); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ours.Close() })
	}
	each := (int64(heap()) - int64(before)) / n
	t.Logf("an idle sandbox costs %d bytes", each)
	if each > 64<<10 {
		t.Errorf("an idle sandbox costs %d bytes", each)
	}
	w.Close()
	if more := openFiles(t) - files; more > n { // the sentries' ends
		t.Errorf("%d descriptors are left", more-n)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestARenameCutsFlowsBetweenSandboxes, whichever of the two has another name, as far as a rule was
// about it.
func TestARenameCutsFlowsBetweenSandboxes(t *testing.T) {
	for renamed, of := range map[string]string{"web": "the source", "db": "the target"} {
		t.Run(of, func(t *testing.T) {
			w := newWorld(t, nil)
			docs := map[string]api.NetworkPolicy{"web": document(t, `{"allow": ["sandbox=db"]}`), "db": document(t, `{"accept": ["sandbox=web"]}`)}
			web, db := w.newSentry("web", docs["web"]), w.newSentry("db", docs["db"])
			addrs, _ := web.lookUp("db.sandbox")
			opened := make(chan *guest, 1)
			go func() { g, _ := web.dial(wire.TCP, addrs[0]+":1"); opened <- g }()
			m := <-db.inbound
			defer m.file.Close()
			db.send(wire.Message{Kind: wire.Accepted, Flow: m.Flow})
			g := <-opened
			if g == nil {
				t.Fatal("it was not opened")
			}
			defer g.Close()
			rename := func(name string, metadata map[string]string) {
				t.Helper()
				r := Registration{ID: renamed, Name: name, Labels: metadata, Policy: policy.Spec{Document: docs[renamed]}}
				if err := w.Replace(r); err != nil {
					t.Fatal(err)
				}
			}
			rename(renamed, map[string]string{"what": "no rule asks for"})
			if n := w.Stats().Flows; n != 2 {
				t.Errorf("%d flows are open, not the two ends of one", n)
			}
			rename("other", nil)
			if k := g.last(); k != wire.Reset {
				t.Errorf("the flow is told to have ended by %v", k)
			}
			if _, code := web.dial(wire.TCP, addrs[0]+":1"); code != wire.CodeRefused {
				t.Errorf("the next one: %v", code)
			}
		})
	}
}
