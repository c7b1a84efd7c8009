package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socketKinds are pipes and sockets.
func socketKinds() map[string]kind {
	socketPair := func(kind int) func() (int, int, error) {
		return func() (int, int, error) {
			fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
			return fds[0], fds[1], err
		}
	}
	socket := func(domain, kind, protocol int) kind_ {
		return opened(func() (int, error) { return unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol) }, nil)
	}
	loopback4, loopback6 := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, &unix.SockaddrInet6{Addr: [16]byte{15: 1}}
	dir := kindsDir()
	return map[string]kind{
		"pipe": oneWay(func() (a, b int, err error) {
			var fds [2]int
			err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
			return fds[1], fds[0], err
		}),
		"pipe-packets": oneWay(func() (a, b int, err error) {
			var fds [2]int
			err = unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_DIRECT)
			return fds[1], fds[0], err
		}),
		"unix-stream":    pair(socketPair(unix.SOCK_STREAM)),
		"unix-dgram":     pair(socketPair(unix.SOCK_DGRAM)),
		"unix-seqpacket": pair(socketPair(unix.SOCK_SEQPACKET)),
		"unix-listening": listening(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: filepath.Join(dir, "bound")}),
		"unix-abstract":  listening(unix.AF_UNIX, unix.SOCK_SEQPACKET, &unix.SockaddrUnix{Name: fmt.Sprintf("@kinds-%d", os.Getuid())}),
		"tcp4":           listening(unix.AF_INET, unix.SOCK_STREAM, loopback4),
		"tcp6":           listening(unix.AF_INET6, unix.SOCK_STREAM, loopback6),
		"tcp4-backlog":   backlog(unix.AF_INET, loopback4),
		"tcp6-backlog":   backlog(unix.AF_INET6, loopback6),
		"tcp4-half":      halfClosed(unix.AF_INET, loopback4),
		"udp4":           datagrams(unix.AF_INET, loopback4),
		"udp6":           datagrams(unix.AF_INET6, loopback6),
		"log":            fullQueue(filepath.Join(dir, "log"), true),
		"log-sendto":     fullQueue(filepath.Join(dir, "log-sendto"), false),
		"log-abstract":   fullQueue(fmt.Sprintf("@log-%d", os.Getuid()), false),
		"in-flight":      inFlight,
		"in-flight-ring": inFlightRing,

		"raw-icmp":    socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
		"raw-ip":      socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW),
		"raw6":        socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6),
		"ping":        socket(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP),
		"ping6":       socket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6),
		"packet-raw":  socket(unix.AF_PACKET, unix.SOCK_RAW, int(htons(unix.ETH_P_ALL))),
		"packet":      socket(unix.AF_PACKET, unix.SOCK_DGRAM, int(htons(unix.ETH_P_IP))),
		"sctp":        socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP),
		"mptcp":       socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
		"alg":         socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
		"vsock":       socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"xdp":         socket(unix.AF_XDP, unix.SOCK_RAW, 0),
		"can":         socket(unix.AF_CAN, unix.SOCK_RAW, 1),
		"bluetooth":   socket(unix.AF_BLUETOOTH, unix.SOCK_RAW, 0),
		"key":         socket(unix.AF_KEY, unix.SOCK_RAW, 2),
		"netlink":     netlink(unix.NETLINK_ROUTE),
		"uevent":      netlink(unix.NETLINK_KOBJECT_UEVENT),
		"sock-diag":   netlink(unix.NETLINK_SOCK_DIAG),
		"netfilter":   netlink(unix.NETLINK_NETFILTER),
		"audit":       netlink(unix.NETLINK_AUDIT),
		"generic":     netlink(unix.NETLINK_GENERIC),
		"xfrm":        netlink(unix.NETLINK_XFRM),
		"connector":   netlink(unix.NETLINK_CONNECTOR),
		"tcp-unbound": socket(unix.AF_INET, unix.SOCK_STREAM, 0),
		"udp-options": udpWithOptions,
		"tcp-filter":  filtered,
	}
}

// kind_ is kind where that names a parameter.
type kind_ = kind

func htons(v uint16) uint16 { return v<<8 | v>>8 }

func netlink(protocol int) kind {
	return opened(func() (int, error) {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return 0, err
		}
		return fd, unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}, func(fd int) error {
		_, err := unix.Getsockname(fd)
		return err
	})
}

// listening is a socket that listens, to which each check connects.
func listening(domain, kind int, at unix.Sockaddr) kind_ {
	return func() (func() error, error) {
		l, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		if err := unix.Bind(l, at); err != nil {
			return nil, err
		}
		if err := unix.Listen(l, 8); err != nil {
			return nil, err
		}
		return func() error {
			name, err := unix.Getsockname(l)
			if err != nil {
				return err
			}
			c, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(c)
			if err := unix.Connect(c, name); err != nil {
				return fmt.Errorf("connect: %w", err)
			}
			s, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
			if err != nil {
				return fmt.Errorf("accept: %w", err)
			}
			defer unix.Close(s)
			return errors.Join(pass(c, s), pass(s, c))
		}, nil
	}
}

// connected returns two ends of a connection that waits to be accepted, and who
// listens.
func connecting(domain int, at unix.Sockaddr) (listener, client int, err error) {
	if listener, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, 0, err
	}
	if err := unix.Bind(listener, at); err != nil {
		return 0, 0, err
	}
	if err := unix.Listen(listener, 8); err != nil {
		return 0, 0, err
	}
	name, err := unix.Getsockname(listener)
	if err != nil {
		return 0, 0, err
	}
	if client, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, 0, err
	}
	return listener, client, unix.Connect(client, name)
}

// backlog is a connection that nobody has accepted until the second check.
func backlog(domain int, at unix.Sockaddr) kind {
	return func() (func() error, error) {
		l, c, err := connecting(domain, at)
		if err != nil {
			return nil, err
		}
		checks, s := 0, -1
		return func() error {
			if checks++; checks == 1 {
				return nil
			}
			if s < 0 {
				if s, _, err = unix.Accept4(l, unix.SOCK_CLOEXEC); err != nil {
					return fmt.Errorf("accept: %w", err)
				}
			}
			return errors.Join(pass(c, s), pass(s, c))
		}, nil
	}
}

// halfClosed is a connection of which one direction has ended.
func halfClosed(domain int, at unix.Sockaddr) kind {
	return func() (func() error, error) {
		l, c, err := connecting(domain, at)
		if err != nil {
			return nil, err
		}
		s, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
		if err != nil {
			return nil, err
		}
		if err := unix.Shutdown(c, unix.SHUT_WR); err != nil {
			return nil, err
		}
		return func() error {
			if err := awaitReadable(s); err != nil {
				return err
			}
			if n, err := unix.Read(s, make([]byte, 8)); n != 0 || err != nil {
				return fmt.Errorf("the closed direction reads %d bytes, %v", n, err)
			}
			return pass(s, c)
		}, nil
	}
}

// datagrams is two sockets, one of which is connected to the other.
func datagrams(domain int, at unix.Sockaddr) kind {
	return oneWay(func() (a, b int, err error) {
		if b, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return 0, 0, err
		}
		if err := unix.Bind(b, at); err != nil {
			return 0, 0, err
		}
		name, err := unix.Getsockname(b)
		if err != nil {
			return 0, 0, err
		}
		if a, err = unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return 0, 0, err
		}
		return a, b, unix.Connect(a, name)
	})
}

// fullQueue is a socket of unix datagrams at a name, and a thread that sends to it for ever. Mostly the thread waits
// for room. check receives more than the queue holds.
func fullQueue(name string, connected bool) kind {
	return func() (func() error, error) {
		to := &unix.SockaddrUnix{Name: name}
		r, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		if err := unix.Bind(r, to); err != nil {
			return nil, err
		}
		limit := unix.NsecToTimeval(int64(patience))
		if err := unix.SetsockoptTimeval(r, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
			return nil, err
		}
		w, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		if connected {
			if err := unix.Connect(w, to); err != nil {
				return nil, err
			}
		}
		go func() {
			runtime.LockOSThread()
			for message, err := make([]byte, 4096), error(nil); err == nil; {
				if connected {
					_, err = unix.Write(w, message)
				} else {
					err = unix.Sendto(w, message, 0, to)
				}
			}
		}()
		return func() error {
			for i := range 200 {
				if _, err := unix.Read(r, make([]byte, 4096)); err != nil {
					return fmt.Errorf("datagram %d: %w", i, err)
				}
			}
			return nil
		}, nil
	}
}

func udpWithOptions() (func() error, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	options := func() error {
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMP, 1),
			unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_PKTINFO, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}),
			unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1}),
		)
	}
	if err := options(); err != nil {
		return nil, err
	}
	return func() error {
		if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST); v != 1 || err != nil {
			return fmt.Errorf("SO_BROADCAST is %d, %v", v, err)
		}
		return nil
	}, nil
}

// filtered is a socket with a BPF program.
func filtered() (func() error, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	all := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &all}); err != nil {
		return nil, err
	}
	return func() error { return nil }, nil
}

// inFlight is a memory file that nobody has but a message that was not received.
func inFlight() (func() error, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	send := func(text string) error {
		file, err := unix.MemfdCreate("flight", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(file)
		if _, err := unix.Write(file, []byte(text)); err != nil {
			return err
		}
		return unix.Sendmsg(fds[0], []byte{1}, unix.UnixRights(file), nil, 0)
	}
	text := nextRound()
	if err := send(text); err != nil {
		return nil, err
	}
	return func() error {
		if err := awaitReadable(fds[1]); err != nil {
			return err
		}
		oob := make([]byte, unix.CmsgSpace(4))
		if _, _, _, _, err := unix.Recvmsg(fds[1], make([]byte, 8), oob, unix.MSG_CMSG_CLOEXEC); err != nil {
			return err
		}
		file := int(binary.LittleEndian.Uint32(oob[unsafe.Sizeof(unix.Cmsghdr{}):]))
		defer unix.Close(file)
		if err := wantAt(file, text); err != nil {
			return err
		}
		text = nextRound()
		return send(text)
	}, nil
}

// inFlightRing is two sockets that nobody has but a message on themselves.
func inFlightRing() (func() error, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Sendmsg(fds[0], []byte{1}, unix.UnixRights(fds[0], fds[1]), nil, 0); err != nil {
		return nil, err
	}
	unix.Close(fds[0])
	unix.Close(fds[1])
	return func() error { return nil }, nil
}
