package netspaces

import (
	gocontext "context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"gvisor.dev/gvisor/pkg/sentry/inet"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/state"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/aside"
	"ramet.dev/ramet/internal/sentry/paired"
	"ramet.dev/ramet/internal/sentry/saved"
	"ramet.dev/ramet/internal/sentry/uplink"
)

// Key names the Namespaces in the kernel's saved state.
const Key = "ramet.netspaces"

// Namespaces makes the stacks of network namespaces other than the sandbox's own, and keeps them over a save. It
// implements inet.NetworkStackCreator.
type Namespaces struct {
	mu     sync.Mutex
	k      *kernel.Kernel // not saved
	stacks []*netstack.Stack
	// described has the states of the sandbox's own stack and of stacks, as JSON, while the kernel is saved.
	described string

	// While the kernel is loaded, and not saved: gVisor asks for a new stack for each namespace. It gets an empty
	// one, which becomes the namespace's stack in Load.
	loading   bool
	empty     []*netstack.Stack
	restoring atomic.Bool // sockets
	routes    []*stack.Route
}

// New returns the Namespaces of a kernel, which is not initialized yet.
func New(k *kernel.Kernel) *Namespaces { return &Namespaces{k: k} }

// CreateStack implements inet.NetworkStackCreator.
func (n *Namespaces) CreateStack() (inet.Stack, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.loading {
		s := &netstack.Stack{}
		n.empty = append(n.empty, s)
		return s, nil
	}
	var stats tcpip.Stats
	s, err := newStack(n.k.Timekeeper(), n.k, stats.FillIn())
	if err != nil {
		return nil, err
	}
	n.stacks = append(n.living(), s)
	return s, nil
}

// Stacks returns the stacks of all namespaces but the sandbox's own.
func (n *Namespaces) Stacks() (all []*stack.Stack) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.living() {
		all = append(all, s.Stack)
	}
	return all
}

// living forgets the stacks of namespaces that have ended, and returns the others.
func (n *Namespaces) living() []*netstack.Stack {
	n.stacks = slices.DeleteFunc(n.stacks, func(s *netstack.Stack) bool { return closed(s.Stack) })
	return n.stacks
}

// closed reports whether a stack was closed, as it is with its namespace. Nobody may pause it then. gVisor has no
// accessor for that.
func closed(s *stack.Stack) bool {
	p := s.TransportProtocolInstance(tcp.ProtocolNumber)
	if own := paired.Of(s); own != nil {
		p = own.TransportProtocol
	}
	d := reflect.ValueOf(p).Elem().FieldByName("dispatcher")
	lock := d.FieldByName("mu")
	mu := reflect.NewAt(lock.Type(), unsafe.Pointer(lock.UnsafeAddr())).Interface().(sync.Locker)
	mu.Lock()
	defer mu.Unlock()
	return d.FieldByName("closed").Bool()
}

// Take stops the stacks of namespaces, takes out of them what is saved in another form, and describes them and root,
// the sandbox's own stack, until restore is called. It refuses interfaces that cannot be made again. The kernel must
// be paused.
func (n *Namespaces) Take(root *stack.Stack) (restore func(), err error) {
	stacks := append([]*stack.Stack{root}, n.Stacks()...)
	states, err := describe(stacks)
	if err != nil {
		return nil, err
	}
	var back []func()
	for i, s := range stacks[1:] {
		s.Pause()
		counters, putBack := aside.TakeStack(s)
		states[i+1].Counters = []byte(counters)
		back = append(back, func() {
			putBack()
			s.Resume()
		})
	}
	text, err := json.Marshal(states)
	n.described = string(text)
	restore = func() {
		n.described = ""
		for _, f := range back {
			f()
		}
	}
	if err != nil {
		restore()
		return nil, fmt.Errorf("describe network interfaces: %w", err)
	}
	return restore, nil
}

// Load gives the namespaces of k, which is being loaded, their stacks, and makes the interfaces of all stacks. root is
// the sandbox's own, which has its counters and no interface; plugIn makes that to the outside in it. root's Restore
// brings back the sockets of all of them. Call Loaded after it.
func (n *Namespaces) Load(k *kernel.Kernel, root *stack.Stack, plugIn func(*stack.Stack) error) error {
	n.k = k
	n.restoring.Store(true)
	states := []stackState{{}}
	if n.described != "" { // else it is of a version that did not describe
		if err := json.Unmarshal([]byte(n.described), &states); err != nil || len(states) != len(n.stacks)+1 {
			return api.Errorf(api.CodeCorrupt, "saved state describes %d network namespaces of %d: %v", len(states)-1, len(n.stacks), err)
		}
	}
	n.described = ""
	if err := makeLoopback(root); err != nil {
		return err
	}
	if err := plugIn(root); err != nil {
		return err
	}
	reserve(root, uplink.NIC)
	stacks := []*stack.Stack{root}
	for i, s := range n.stacks {
		s.Stack.ResetConfig()
		if err := aside.SetCounters(s.Stack, string(states[i+1].Counters)); err != nil {
			return err
		}
		if err := makeLoopback(s.Stack); err != nil {
			return err
		}
		reserve(s.Stack, loopbackNIC)
		stacks = append(stacks, s.Stack)
	}
	if len(states[0].Interfaces) > 0 {
		if err := rebuild(stacks, states, &n.restoring); err != nil {
			return api.Errorf(api.CodeCorrupt, "saved state: %w", err)
		}
	}
	for _, s := range stacks {
		n.routes = append(n.routes, ownRoutes(s)...)
	}
	// A socket that listens waits for those that are connected, in any stack.
	for _, s := range stacks[1:] {
		for _, e := range restoredOf(s) {
			root.RegisterRestoredEndpoint(&restored{e, s})
		}
	}
	return nil
}

// Loaded starts the stacks after Load, when the endpoints are restored.
func (n *Namespaces) Loaded() {
	for _, s := range n.stacks {
		s.Stack.Restore()
	}
	n.restoring.Store(false)
	for _, r := range n.routes {
		r.Release()
	}
	n.routes = nil
	n.adopt()
}

// ownRoutes returns routes of a stack to its addresses. As long as they are held, lo has these addresses, as it has
// while a connection to one of them is open: the accepting end cannot be restored first otherwise.
func ownRoutes(s *stack.Stack) (routes []*stack.Route) {
	for id, addresses := range s.AllAddresses() {
		if id == loopbackNIC {
			continue
		}
		for _, a := range addresses {
			if r, err := s.FindRoute(0, a.AddressWithPrefix.Address, a.AddressWithPrefix.Address, a.Protocol, false); err == nil {
				routes = append(routes, r)
			}
		}
	}
	return routes
}

// adopt gives the empty stacks that gVisor asked for what they stand for.
func (n *Namespaces) adopt() {
	var kept []*netstack.Stack
	for _, s := range n.stacks {
		of := subscriberOf(s)
		i := slices.IndexFunc(n.empty, func(e *netstack.Stack) bool { return *subscriberOf(e) == *of })
		if i < 0 {
			s.Destroy() // its namespace was not saved
			continue
		}
		own := n.empty[i]
		own.Stack, *idOf(own) = s.Stack, *idOf(s)
		kept = append(kept, own)
	}
	n.stacks, n.empty, n.loading = kept, nil, false
}

// restored is an endpoint of a stack that another stack restores.
type restored struct {
	endpoint stack.RestoredEndpoint
	own      *stack.Stack
}

// Restore implements stack.RestoredEndpoint.
func (r *restored) Restore(*stack.Stack) { r.endpoint.Restore(r.own) }

// restoredOf takes the endpoints that a stack is to restore out of it. gVisor has no accessor for them, nor for those
// of idOf and subscriberOf.
func restoredOf(s *stack.Stack) []stack.RestoredEndpoint {
	at := (*[]stack.RestoredEndpoint)(unsafe.Pointer(reflect.ValueOf(s).Elem().FieldByName("restoredEndpoints").UnsafeAddr()))
	all := *at
	*at = nil
	return all
}

// subscriberOf returns where a stack has the table of sockets that are told of its interfaces. It is the namespace's,
// saved with it, and each namespace has another one.
func subscriberOf(s *netstack.Stack) *inet.InterfaceEventSubscriber {
	return (*inet.InterfaceEventSubscriber)(unsafe.Pointer(reflect.ValueOf(s).Elem().FieldByName("eventSubscriber").UnsafeAddr()))
}

func idOf(s *netstack.Stack) *uint64 {
	return (*uint64)(unsafe.Pointer(reflect.ValueOf(s).Elem().FieldByName("id").UnsafeAddr()))
}

func (*Namespaces) StateTypeName() string {
	return "ramet.dev/ramet/internal/sentry/netspaces.Namespaces"
}
func (*Namespaces) StateFields() []string { return []string{"stacks", "described"} }

// fields are in the order of StateFields.
func (n *Namespaces) fields() []any             { return []any{&n.stacks, &n.described} }
func (n *Namespaces) StateSave(sink state.Sink) { saved.Save(sink, n.fields()) }
func (n *Namespaces) StateLoad(_ gocontext.Context, src state.Source) {
	n.loading = true
	saved.Load(src, n.fields())
}

func init() { state.Register((*Namespaces)(nil)) }
