package datagrams

import (
	"testing"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/waiter"
)

// connected returns a receiver, and a socket that is connected to it.
func connected(t *testing.T) (receiver, sender transport.Endpoint) {
	t.Helper()
	ctx := context.Background()
	receiver, sender = transport.NewConnectionless(ctx), transport.NewConnectionless(ctx)
	if err := sender.Connect(ctx, receiver.(transport.BoundEndpoint)); err != nil {
		t.Fatal(err)
	}
	return receiver, sender
}

func TestSenderIsWoken(t *testing.T) {
	receiver, socket := connected(t)
	room := roomOfPeer(socket)
	if room == nil || room != roomOf(receiver.(transport.BoundEndpoint)) {
		t.Fatalf("the sender's peer has %p, the receiver %p", room, roomOf(receiver.(transport.BoundEndpoint)))
	}
	sendersTo(room).add(&sender{socket: socket, waiters: waitersOf(socket)}, room)
	e, woken := waiter.NewChannelEntry(waiter.WritableEvents)
	if err := socket.EventRegister(&e); err != nil {
		t.Fatal(err)
	}
	room.Notify(waiter.WritableEvents)
	select {
	case <-woken:
	default:
		t.Error("room at the receiver does not wake the sender")
	}
}

// TestSendersLeave checks that a receiver forgets sockets that are closed or connected elsewhere.
func TestSendersLeave(t *testing.T) {
	ctx := context.Background()
	receiver, first := connected(t)
	room := roomOfPeer(first)
	all := sendersTo(room)
	for i := range 1000 {
		s := transport.NewConnectionless(ctx)
		if err := s.Connect(ctx, receiver.(transport.BoundEndpoint)); err != nil {
			t.Fatal(err)
		}
		sendersTo(room).add(&sender{socket: s, waiters: waitersOf(s)}, room)
		if i%2 == 0 {
			s.Close(ctx)
		} else {
			other, _ := connected(t)
			if err := s.Connect(ctx, other.(transport.BoundEndpoint)); err != nil {
				t.Fatal(err)
			}
		}
		sendersTo(room).add(&sender{socket: first, waiters: waitersOf(first)}, room) // again and again
	}
	if sendersTo(room) != all || len(all.list) > 16 {
		t.Errorf("%d senders are kept", len(all.list))
	}
}

func TestSenderOfACall(t *testing.T) {
	receiver, socket := connected(t)
	room := roomOf(receiver.(transport.BoundEndpoint))
	s := &sender{waiters: waitersOf(socket)}
	sendersTo(room).add(s, room)
	sendersTo(room).remove(s)
	if n := len(sendersTo(room).list); n != 0 {
		t.Errorf("%d senders are left", n)
	}
}

// ids numbers endpoints.
type ids uint64

func (i *ids) UniqueID() uint64 { *i++; return uint64(*i) }

func TestOtherEndpoints(t *testing.T) {
	a, _ := transport.NewPair(context.Background(), linux.SOCK_DGRAM, new(ids))
	if roomOfPeer(a) != nil || waitersOf(a) != nil {
		t.Error("a pair is taken for a bound socket")
	}
}
