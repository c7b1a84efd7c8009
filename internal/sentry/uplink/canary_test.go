package uplink

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/internal/sentry/netsock"
	"ramet.dev/ramet/internal/sentry/savedtest"
)

// See canary_test.go of package cow for what this is.

func TestCanarySavedTypes(t *testing.T) {
	savedtest.Check(t, []savedtest.Savable{&lost{}})
}

func TestCanaryFieldsOfEndpoints(t *testing.T) {
	v := reflect.ValueOf(offsets)
	for i := range v.NumField() {
		if v.Field(i).Uint() == uint64(netsock.NoField) {
			t.Errorf("an endpoint of TCP has no field for %q any more, or of another type: TakeConnections needs it", v.Type().Field(i).Name)
		}
	}
}

func TestLostEnds(t *testing.T) {
	for name, use := range map[string]func(l *lost) tcpip.Error{
		"read": func(l *lost) tcpip.Error { _, err := l.Read(&bytes.Buffer{}, tcpip.ReadOptions{}); return err },
		"write": func(l *lost) tcpip.Error {
			_, err := l.Write(strings.NewReader("x"), tcpip.WriteOptions{})
			return err
		},
		"SO_ERROR": func(l *lost) tcpip.Error { return l.LastError() },
	} {
		l := newLost(networks[0].address.Address, 4711)
		var buf bytes.Buffer
		if _, err := state.Save(t.Context(), &buf, l); err != nil {
			t.Fatal(err)
		}
		l = &lost{}
		if _, err := state.Load(t.Context(), &buf, l); err != nil {
			t.Fatal(err)
		}
		if addr, err := l.GetLocalAddress(); err != nil || addr.Addr != networks[0].address.Address || addr.Port != 4711 {
			t.Errorf("it is at %v: %v", addr, err)
		}
		want := waiter.ReadableEvents | waiter.WritableEvents | waiter.EventErr | waiter.EventHUp
		if ready := l.Readiness(want); ready != want {
			t.Errorf("it is ready for %#x, not %#x", ready, want)
		}
		if err := use(l); !isReset(err) {
			t.Errorf("%s first: %v", name, err)
		}
		if _, err := l.Read(&bytes.Buffer{}, tcpip.ReadOptions{}); !isEnd(err) {
			t.Errorf("read after %s: %v", name, err)
		}
		if _, err := l.Write(strings.NewReader("x"), tcpip.WriteOptions{}); err == nil || isReset(err) {
			t.Errorf("write after %s: %v", name, err)
		}
		if err := l.LastError(); err != nil {
			t.Errorf("SO_ERROR after %s: %v", name, err)
		}
		info := tcpip.TCPInfoOption{}
		if err := l.GetSockOpt(&info); err != nil || tcp.EndpointState(info.State) != tcp.StateError {
			t.Errorf("TCP_INFO: %v, %v", info.State, err)
		}
		l.SocketOptions().SetReceiveBufferSize(1<<20, true)
		l.SocketOptions().SetKeepAlive(true)
	}
}

func isReset(err tcpip.Error) bool {
	_, ok := err.(*tcpip.ErrConnectionReset)
	return ok
}

func isEnd(err tcpip.Error) bool {
	_, ok := err.(*tcpip.ErrClosedForReceive)
	return ok
}
