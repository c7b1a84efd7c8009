package wire

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	v4 = netip.MustParseAddr("192.0.2.7")
	v6 = netip.MustParseAddr("2001:db8::7")
)

// samples has a valid message of each kind.
var samples = []Message{
	{Kind: Dial, Protocol: TCP, Flow: 1, Port: 443, Address: v4},
	{Kind: Dial, Protocol: UDP, Flow: FirstInbound - 1, Port: 65535, Address: v6},
	{Kind: Dial, Protocol: TCP, Port: 1, Address: netip.IPv6Unspecified()},
	{Kind: Question, Flow: 2, Payload: []byte("question")},
	{Kind: Echo, Flow: 3, Address: v6, Payload: []byte("ping")},
	{Kind: Reset, Flow: 4},
	{Kind: Reset, Flow: FirstInbound},
	{Kind: Closed, Flow: 5},
	{Kind: Closed, Flow: FirstInbound + 5},
	{Kind: Accepted, Flow: FirstInbound + 6},
	{Kind: Refused, Flow: FirstInbound + 7},
	{Kind: Verdict, Flow: 8, Code: CodeTimedOut},
	{Kind: Verdict, Flow: 8},
	{Kind: Answer, Flow: 9, Payload: bytes.Repeat([]byte{1}, MaxPayload)},
	{Kind: Echoed, Flow: 10},
	{Kind: Deliver, Flow: FirstInbound + 11, Port: 80},
}

func TestMessagesComeBack(t *testing.T) {
	seen := map[Kind]bool{}
	for _, m := range samples {
		seen[m.Kind] = true
		b, err := m.Append([]byte("kept"))
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		if got := len(b) - len("kept"); got != HeaderSize+len(m.Payload) {
			t.Errorf("%v has %d bytes", m.Kind, got)
		}
		back, err := Decode(b[len("kept"):])
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		if diff := cmp.Diff(m, back, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%v changed: %s", m.Kind, diff)
		}
	}
	if len(seen) != int(kinds)-1 {
		t.Errorf("%d of %d kinds were tried", len(seen), kinds-1)
	}
}

func TestMappedAddressesAreIPv4(t *testing.T) {
	m := Message{Kind: Echo, Address: netip.MustParseAddr("::ffff:192.0.2.7")}
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := Decode(b); err != nil || back.Address != v4 {
		t.Errorf("address %v: %v", back.Address, err)
	}
}

func TestMessagesThatAreRefused(t *testing.T) {
	for text, m := range map[string]Message{
		"unknown kind 0":      {},
		"unknown kind 12":     {Kind: kinds},
		"neither TCP nor UDP": {Kind: Dial, Protocol: 1, Port: 1, Address: v4},
		"port is 0":           {Kind: Dial, Protocol: TCP, Address: v4},
		"address is missing":  {Kind: Echo},
		"zone":                {Kind: Echo, Address: v6.WithZone("eth0")},
		"does not number":     {Kind: Accepted, Flow: 1},
		"dial has flow":       {Kind: Dial, Protocol: TCP, Port: 1, Address: v4, Flow: FirstInbound},
		"verdict has flow":    {Kind: Verdict, Flow: FirstInbound},
		"unknown code 6":      {Kind: Verdict, Code: codes},
		"question has a":      {Kind: Question, Port: 1},
		"closed has a":        {Kind: Closed, Payload: []byte{1}},
		"reset has a":         {Kind: Reset, Address: v4},
		"accepted has a":      {Kind: Accepted, Flow: FirstInbound, Code: CodeRefused},
		"echoed has a":        {Kind: Echoed, Protocol: TCP},
		"payload is larger":   {Kind: Question, Payload: make([]byte, MaxPayload+1)},
	} {
		if _, err := m.Append(nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("encode %+v: %v, want %q", m.Kind, err, text)
		}
	}
	short := make([]byte, HeaderSize-1)
	if _, err := Decode(short); !errors.Is(err, ErrShort) {
		t.Errorf("decode short message: %v", err)
	}
}

func TestFilesComeWithSome(t *testing.T) {
	for _, m := range samples {
		want := m.Kind == Deliver || m.Kind == Verdict && m.Code == CodeOK
		if m.WithFile() != want {
			t.Errorf("%v with code %v: WithFile %v", m.Kind, m.Code, m.WithFile())
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range samples {
		b, err := m.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			return
		}
		again, err := m.Append(nil)
		if err != nil {
			t.Fatalf("%+v was decoded and cannot be encoded: %v", m, err)
		}
		twice, err := Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, twice, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Fatal(diff)
		}
		// Only an address has two forms.
		if m.Address.Is4() {
			return
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("% x became % x", b, again)
		}
	})
}
