package control

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ramet.dev/ramet/api"
)

// kept returns the numbers of the flows of the lines that a log keeps of a sandbox.
func kept(t *testing.T, l *Log, sandbox string) (flows []uint64) {
	t.Helper()
	if err := l.Read(t.Context(), Reading{Sandbox: sandbox, Kept: true}, func(line Line) error {
		flows = append(flows, line.Flow)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return flows
}

func TestANoisySandboxTakesNoRoomFromOthers(t *testing.T) {
	var l Log
	l.Began("quiet")
	l.Add(api.NetworkLogEntry{Sandbox: "quiet", Flow: 7})
	for i := range maxTotal { // as many as there is room for, of sandboxes that have ended
		id := fmt.Sprint("gone", i)
		l.Began(id)
		l.Add(api.NetworkLogEntry{Sandbox: id})
		l.Ended(id)
	}
	for noisy := range 40 {
		id := fmt.Sprint("noisy", noisy)
		l.Began(id)
		for i := range 2 * maxLines {
			l.Add(api.NetworkLogEntry{Sandbox: id, Flow: uint64(i)})
		}
	}
	if got := kept(t, &l, "quiet"); fmt.Sprint(got) != "[7]" {
		t.Errorf("of a quiet sandbox lines %v are kept", got)
	}
	if got := kept(t, &l, "gone0"); got != nil {
		t.Errorf("a sandbox that has ended keeps room that others need: %d lines", len(got))
	}
	if l.total > maxTotal {
		t.Errorf("%d lines are kept, more than %d", l.total, maxTotal)
	}
	got := kept(t, &l, "noisy39")
	if len(got) == 0 || len(got) > maxLines || got[len(got)-1] != 2*maxLines-1 {
		t.Errorf("of the last sandbox %d lines are kept, %v", len(got), got[max(0, len(got)-1):])
	}
}

func TestASandboxThatGoesOnKeepsItsLines(t *testing.T) {
	var l Log
	l.Began("one")
	l.Add(api.NetworkLogEntry{Sandbox: "one", Flow: 1})
	l.Ended("one") // it is hibernated
	l.Began("one") // and woken
	for i := range 2 * maxTotal {
		l.Add(api.NetworkLogEntry{Sandbox: fmt.Sprint("other", i)})
	}
	if got := kept(t, &l, "one"); len(got) != 1 {
		t.Errorf("lines %v are kept", got)
	}
	if len(l.sandboxes) > maxTotal+1 {
		t.Errorf("%d sandboxes are known", len(l.sandboxes))
	}
}

func TestAReadingGoesOnBehindALine(t *testing.T) {
	var l Log
	for i := range 2 * maxLines {
		l.Add(api.NetworkLogEntry{Sandbox: "one", Flow: uint64(i)})
		l.Add(api.NetworkLogEntry{Sandbox: "two", Flow: uint64(i)})
	}
	var all []Line
	read := func(after uint64) (flows []uint64) {
		if err := l.Read(t.Context(), Reading{Sandbox: "two", Kept: true, After: after}, func(line Line) error {
			all = append(all, line)
			flows = append(flows, line.Flow)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return flows
	}
	if got := read(0); len(got) != maxLines || got[0] != maxLines {
		t.Fatalf("%d lines from %v on are kept", len(got), got[:1])
	}
	if got := read(all[maxLines-3].Number); fmt.Sprint(got) != fmt.Sprint([]uint64{2*maxLines - 2, 2*maxLines - 1}) {
		t.Errorf("behind the last but two there are %v", got)
	}
	if got := read(all[maxLines-1].Number); got != nil {
		t.Errorf("behind the last there are %v", got)
	}
}

func TestALogThatIsReadSlowly(t *testing.T) {
	var l Log
	l.Add(api.NetworkLogEntry{Flow: 0})
	var got, lost uint64
	stop := errors.New("stop")
	err := l.Read(t.Context(), Reading{Kept: true, Follow: true}, func(line Line) error {
		got++
		lost += line.Lost
		switch line.Flow {
		case 0:
			for i := range 3 * maxBehind { // while it reads the first one
				l.Add(api.NetworkLogEntry{Flow: uint64(i + 1)})
			}
		case maxBehind:
			l.Add(api.NetworkLogEntry{Flow: 3*maxBehind + 1})
		case 3*maxBehind + 1:
			return stop
		}
		return nil
	})
	if err != stop || got != maxBehind+2 || lost != 2*maxBehind {
		t.Errorf("%d lines were read and %d lost: %v", got, lost, err)
	}
}

func TestWhoFollowsReadsTheLogToItsEnd(t *testing.T) {
	var l Log
	l.Add(api.NetworkLogEntry{Flow: 0})
	got := 0
	if err := l.Read(t.Context(), Reading{Kept: true, Follow: true}, func(line Line) error {
		if got++; line.Flow == 0 {
			l.Add(api.NetworkLogEntry{Flow: 1}) // the end of the flows of a gateway that ends
			l.Close()
		}
		return nil
	}); err != nil || got != 2 {
		t.Errorf("%d lines were read: %v", got, err)
	}
}

func TestASampleOfAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sample
		told := map[string]int{}
		lost := uint64(0)
		take := func(sandbox string, v api.NetworkVerdict, d float64) {
			n, taken := s.take(&Line{NetworkLogEntry: api.NetworkLogEntry{Sandbox: sandbox, Verdict: v, Protocol: "tcp", DurationMS: d, At: time.Now()}})
			if taken {
				told[sandbox+" "+string(v)]++
				lost += n
			}
		}
		for range 10_000 {
			take("noisy", api.NetworkDenied, 0)
		}
		take("quiet", api.NetworkDenied, 0)
		take("noisy", api.NetworkAllowed, 0)
		take("quiet", api.NetworkAllowed, 2.5) // the end of a flow
		if told["noisy denied"] != sampleBurst || told["quiet denied"] != 1 || told["noisy allowed"] != 1 || told["quiet allowed"] != 0 {
			t.Errorf("the sample has %v", told)
		}
		<-time.After(sampleEvery)
		if take("noisy", api.NetworkDenied, 0); told["noisy denied"] != sampleBurst+1 || lost != 10_000-sampleBurst {
			t.Errorf("after a while it has %v, and lacks %d", told, lost)
		}
		for i := range 2 * totalBurst {
			take(fmt.Sprint("sandbox", i), api.NetworkDenied, 0)
		}
		all := 0
		for what, n := range told {
			if what != "noisy allowed" {
				all += n
			}
		}
		if all > totalBurst+int(sampleEvery/totalEvery) {
			t.Errorf("it has %d denials of many sandboxes", all)
		}
	})
}
