package datagrams

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix"
	"gvisor.dev/gvisor/pkg/sentry/socket/unix/transport"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Connect is connect(2), of which original is gVisor's.
func Connect(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		n, control, err := original(t, sysno, args)
		if err != nil {
			return n, control, err
		}
		socket, done := socketOf(t, args[0].Int())
		if socket == nil {
			return n, control, nil
		}
		defer done()
		if room := roomOfPeer(socket.Endpoint()); room != nil {
			s := &sender{socket: socket.Endpoint(), waiters: waitersOf(socket.Endpoint())}
			sendersTo(room).add(s, room)
			s.waiters.Notify(waiter.WritableEvents) // another thread may have met the full queue before
		}
		return n, control, nil
	}
}

// Sendto is sendto(2), of which original is gVisor's.
func Sendto(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		name := address{args[4].Pointer(), args[5].Uint()}
		if name.addr == 0 {
			return original(t, sysno, args)
		}
		return send(t, sysno, args, 3, original, func(*kernel.Task) []address { return []address{name} })
	}
}

// Sendmsg is sendmsg(2), of which original is gVisor's.
func Sendmsg(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		return send(t, sysno, args, 2, original, func(t *kernel.Task) []address {
			return addresses(t, args[1].Pointer(), 0, 1)
		})
	}
}

// Sendmmsg is sendmmsg(2), of which original is gVisor's.
func Sendmmsg(original kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		return send(t, sysno, args, 3, original, func(t *kernel.Task) []address {
			const header, maxMessages = 64, 1024 // struct mmsghdr, UIO_MAXIOV
			return addresses(t, args[1].Pointer(), header, min(args[2].Uint(), maxMessages))
		})
	}
}

// send makes a call that sends. Its flags are the argument at position flagsArg. names returns the addresses to
// which it sends; it is asked only if the call may wait.
func send(t *kernel.Task, sysno uintptr, args arch.SyscallArguments, flagsArg int, original kernel.SyscallFn, names func(*kernel.Task) []address) (uintptr, *kernel.SyscallControl, error) {
	socket, done := socketOf(t, args[0].Int())
	if socket == nil {
		return original(t, sysno, args)
	}
	defer done()
	if args[flagsArg].Int()&linux.MSG_DONTWAIT != 0 {
		return original(t, sysno, args)
	}
	s := &sender{waiters: waitersOf(socket.Endpoint())}
	if s.waiters == nil {
		return original(t, sysno, args)
	}
	for _, name := range names(t) {
		if room := name.room(t); room != nil {
			all := sendersTo(room)
			all.add(s, room)
			defer all.remove(s)
		}
	}
	return original(t, sysno, args)
}

// socketOf returns the datagram socket that is open at fd and may wait, or nil. Call done when it is not used any
// more.
func socketOf(t *kernel.Task, fd int32) (socket *unix.Socket, done func()) {
	file := t.GetFile(fd)
	if file == nil {
		return nil, nil
	}
	if socket, ok := file.Impl().(*unix.Socket); ok {
		if _, kind, _ := socket.Type(); kind == linux.SOCK_DGRAM {
			return socket, func() { file.DecRef(t) }
		}
	}
	file.DecRef(t)
	return nil, nil
}

// address is an address in the memory of a program.
type address struct {
	addr   hostarch.Addr
	length uint32
}

// addresses returns those of n messages that have one. The first header is at addr; the next one follows after size
// bytes.
func addresses(t *kernel.Task, addr hostarch.Addr, size, n uint32) []address {
	var all []address
	for i := range n {
		var start [12]byte // of struct msghdr: the address and its length
		if _, err := t.CopyInBytes(addr+hostarch.Addr(i*size), start[:]); err != nil {
			break // the call fails
		}
		name := hostarch.Addr(hostarch.ByteOrder.Uint64(start[:8]))
		if name != 0 {
			all = append(all, address{name, hostarch.ByteOrder.Uint32(start[8:])})
		}
	}
	return all
}

// room returns the waiters for room at the socket with an address, or nil if there is none. Then the call fails.
func (a address) room(t *kernel.Task) *waiter.Queue {
	const maxLength = 200
	if a.length > maxLength {
		return nil
	}
	bytes := make([]byte, a.length)
	if _, err := t.CopyInBytes(a.addr, bytes); err != nil {
		return nil
	}
	name, family, err := unix.AddressAndFamily(bytes)
	if err != nil || family != linux.AF_UNIX || name.Addr == "" {
		return nil
	}
	e, rerr := resolve(t, name.Addr)
	if rerr != nil {
		return nil
	}
	defer e.Release(t)
	return roomOf(e)
}

// resolve returns the socket with a name: a path, or an abstract name after a zero byte.
func resolve(t *kernel.Task, name string) (transport.BoundEndpoint, error) {
	if name[0] == 0 {
		if e := t.NetworkNamespace().AbstractSockets().BoundEndpoint(name[1:]); e != nil {
			return e, nil
		}
		return nil, linuxerr.ECONNREFUSED
	}
	root := t.FSContext().RootDirectory()
	defer root.DecRef(t)
	start := t.FSContext().WorkingDirectory()
	defer start.DecRef(t)
	path := vfs.PathOperation{Root: root, Start: start, Path: fspath.Parse(name), FollowFinalSymlink: true}
	return t.Kernel().VFS().BoundEndpointAt(t, t.Credentials(), &path, &vfs.BoundEndpointOptions{Addr: name})
}
