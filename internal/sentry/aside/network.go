package aside

import (
	"encoding/binary"
	"reflect"
	"sync"
	"unsafe"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"ramet.dev/ramet/api"
)

// RestoreCounters gives the sandbox's network stack the counters that it was saved without.
func (a *State) RestoreCounters(s *stack.Stack) error { return SetCounters(s, a.counters) }

// SetCounters gives a network stack the counters that TakeStack took.
func SetCounters(s *stack.Stack, counters string) error { return setCounters(countersOf(s), counters) }

// TakeStack takes the counters and the interfaces out of a network stack until restore is called, and returns the
// counters. A child makes the interfaces anew.
func TakeStack(s *stack.Stack) (counters string, restore func()) {
	counters, restoreCounters := takeCounters(s)
	back := []func(){restoreCounters}
	for _, n := range []tcpip.NetworkProtocolNumber{ipv4.ProtocolNumber, ipv6.ProtocolNumber} {
		back = append(back, takeInterfaces(s.NetworkProtocolInstance(n)))
	}
	return counters, func() {
		for _, f := range back {
			f()
		}
	}
}

// takeCounters takes the counters out of a network stack until restore is called, and
// returns their values. Each is an object of its own, together a fifth of the objects of a
// usual state. Events that timers count meanwhile are lost.
func takeCounters(s *stack.Stack) (values string, restore func()) {
	counters := countersOf(s)
	var b []byte
	kept := make([]*tcpip.StatCounter, len(counters))
	nobodys := &tcpip.StatCounter{}
	for i, c := range counters {
		b = binary.AppendUvarint(b, (*c).Value())
		kept[i], *c = *c, nobodys
	}
	return string(b), func() {
		for i, c := range counters {
			*c = kept[i]
		}
	}
}

// setCounters makes counters of the values that takeCounters returned.
func setCounters(counters []**tcpip.StatCounter, values string) error {
	b := []byte(values)
	for i, c := range counters {
		value, n := binary.Uvarint(b)
		if n <= 0 {
			return api.Errorf(api.CodeCorrupt, "saved state has %d of %d counters of the network", i, len(counters))
		}
		*c = &tcpip.StatCounter{}
		(*c).IncrementBy(value)
		b = b[n:]
	}
	if len(b) > 0 {
		return api.Errorf(api.CodeCorrupt, "saved state has more than %d counters of the network", len(counters))
	}
	return nil
}

// countersOf returns where a network stack has its counters. gVisor has no accessor for it.
func countersOf(s *stack.Stack) (all []**tcpip.StatCounter) {
	stats := reflect.ValueOf(s).Elem().FieldByName("stats")
	var visit func(v reflect.Value)
	visit = func(v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Field(i); {
			case f.Type() == reflect.TypeFor[*tcpip.StatCounter]():
				all = append(all, (**tcpip.StatCounter)(unsafe.Pointer(f.UnsafeAddr())))
			case f.Kind() == reflect.Struct:
				visit(f)
			}
		}
	}
	visit(stats)
	return all
}

// takeInterfaces takes the interfaces from a network protocol until restore is called. A child
// makes its interfaces anew, see package netspaces; the old interface would be saved for nothing,
// with its counters and all that it could ever do: a fifth of the objects of a
// usual state. A packet that is sent meanwhile goes by way of the interface.
func takeInterfaces(protocol stack.NetworkProtocol) (restore func()) {
	endpoints, mu := endpointsOf(protocol)
	set := func(to reflect.Value) {
		mu.Lock()
		defer mu.Unlock()
		endpoints.Set(to)
	}
	kept := reflect.ValueOf(endpoints.Interface())
	set(reflect.MakeMap(endpoints.Type()))
	return func() { set(kept) }
}

// endpointsOf returns the map in which a network protocol has its endpoints, of each
// interface, and what protects it. gVisor has no accessors for it.
func endpointsOf(protocol stack.NetworkProtocol) (endpoints reflect.Value, mu sync.Locker) {
	v := reflect.ValueOf(protocol).Elem()
	lock := v.FieldByName("mu")
	field := v.FieldByName("eps")
	if !field.IsValid() { // IPv6
		field = lock.FieldByName("eps")
	}
	mu, _ = reflect.NewAt(lock.Type(), unsafe.Pointer(lock.UnsafeAddr())).Interface().(sync.Locker)
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem(), mu
}
