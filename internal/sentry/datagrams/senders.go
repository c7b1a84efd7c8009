package datagrams

import (
	"reflect"
	"sync"

	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/waiter"
)

// senders are the sockets that send to one receiver. It is the only entry among the waiters for room in the
// receiver's queue.
type senders struct {
	mu    sync.Mutex
	list  []*sender
	prune int // the length of the list at which those that have left are removed
}

// sender is one socket.
type sender struct {
	// socket is nil for a single call, which removes the sender itself.
	socket transport.Endpoint

	// waiters are those that wait at the socket.
	waiters *waiter.Queue
}

// registration guards that each queue gets one senders.
var registration sync.Mutex

// sendersTo returns the senders of the receiver at whose queue room waits for room.
func sendersTo(room *waiter.Queue) *senders {
	registration.Lock()
	defer registration.Unlock()
	if !room.IsEmpty() {
		head := reflect.ValueOf(room).Elem().FieldByName("list").FieldByName("head")
		return (*senders)(head.Elem().FieldByName("eventListener").Elem().UnsafePointer())
	}
	all := &senders{}
	e := new(waiter.Entry)
	e.Init(all, waiter.WritableEvents|waiter.EventHUp)
	room.EventRegister(e)
	return all
}

// NotifyEvent implements waiter.EventListener.NotifyEvent. The receiver calls it, without its own locks, whenever
// its queue has room.
func (all *senders) NotifyEvent(mask waiter.EventMask) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, s := range all.list {
		s.waiters.Notify(mask)
	}
}

// add adds a sender. room is the queue of waiters that all was found by.
func (all *senders) add(s *sender, room *waiter.Queue) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.list) >= all.prune {
		present := map[transport.Endpoint]bool{s.socket: true}
		kept := all.list[:0]
		for _, other := range all.list {
			if other.socket != nil && (present[other.socket] || roomOfPeer(other.socket) != room) {
				continue
			}
			present[other.socket] = true
			kept = append(kept, other)
		}
		clear(all.list[len(kept):])
		all.list = kept
		all.prune = max(8, 2*len(kept))
	}
	all.list = append(all.list, s)
}

// remove removes the sender of one call.
func (all *senders) remove(s *sender) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for i, other := range all.list {
		if other == s {
			last := len(all.list) - 1
			all.list[i], all.list[last] = all.list[last], nil
			all.list = all.list[:last]
			return
		}
	}
}

// fieldsOf returns the fields that an endpoint has, or false if it is not one that this package is for. They may
// be read between e.Lock and e.Unlock.
func fieldsOf(e any) (fields reflect.Value, lock sync.Locker, ok bool) {
	v := reflect.Indirect(reflect.ValueOf(e))
	if v.Kind() != reflect.Struct || v.Type().Name() != "connectionlessEndpoint" {
		return reflect.Value{}, nil, false
	}
	lock, ok = e.(sync.Locker)
	return v.FieldByName("baseEndpoint"), lock, ok
}

// waitersOf returns those that wait at an endpoint, or nil.
func waitersOf(e transport.Endpoint) *waiter.Queue {
	fields, _, ok := fieldsOf(e)
	if !ok {
		return nil
	}
	return (*waiter.Queue)(fields.FieldByName("WaitQueue").UnsafePointer())
}

// roomOfPeer returns the waiters for room at the socket to which an endpoint is connected, or nil.
func roomOfPeer(e transport.Endpoint) *waiter.Queue {
	return room(e, "peer", "writeQueue")
}

// roomOf returns the waiters for room at a receiving endpoint, or nil.
func roomOf(e transport.BoundEndpoint) *waiter.Queue {
	if v := reflect.Indirect(reflect.ValueOf(e)); v.Kind() == reflect.Struct && v.Type().Name() == "boundEndpoint" {
		e = v.FieldByName("BoundEndpoint").Interface().(transport.BoundEndpoint) // of an abstract name
	}
	return room(e, "receiver", "readQueue")
}

// room returns the waiters for room in the queue that a field of an endpoint, an interface, has in its own field.
func room(e any, field, queue string) *waiter.Queue {
	fields, lock, ok := fieldsOf(e)
	if !ok {
		return nil
	}
	lock.Lock()
	defer lock.Unlock()
	end := fields.FieldByName(field)
	if end.IsNil() {
		return nil
	}
	end = reflect.Indirect(end.Elem())
	if end.Kind() != reflect.Struct || !end.FieldByName(queue).IsValid() {
		return nil
	}
	return (*waiter.Queue)(end.FieldByName(queue).Elem().FieldByName("writerWaiters").UnsafePointer())
}
