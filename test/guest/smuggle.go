package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// silence is how long an answer is awaited that should not come.
const silence = 2 * time.Second

// smuggle tries to reach an IPv4 address without a connection of TCP, and prints how each attempt ended.
func smuggle(address string) (int, error) {
	to := net.ParseIP(address).To4()
	if to == nil {
		return 2, fmt.Errorf("%q is no address of IPv4", address)
	}
	for _, way := range []struct {
		name string
		try  func(to net.IP) error
	}{{"udp", smuggleUDP}, {"echo", smuggleEcho}, {"raw", smuggleRaw}, {"fragment", smuggleFragments}, {"packet", smuggleFrame}} {
		how := "answer"
		if err := way.try(to); err != nil {
			how = err.Error()
		}
		fmt.Printf("%s: %s\n", way.name, how)
	}
	return 0, nil
}

// smuggleUDP sends datagrams to a port that is not that of DNS.
func smuggleUDP(to net.IP) error {
	c, err := net.Dial("udp", to.String()+":9")
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(silence)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("out")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 16))
	return err
}

// smuggleEcho sends an echo request.
func smuggleEcho(to net.IP) error {
	return sendPacket(unix.SOCK_DGRAM, unix.IPPROTO_ICMP, to, icmpEcho(), true)
}

// ping sends an echo request over a socket that is connected, and prints what comes of it.
func ping(address string) (int, error) {
	ip := net.ParseIP(address)
	family, protocol, request := unix.AF_INET6, unix.IPPROTO_ICMPV6, icmpEcho()
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: [16]byte(ip.To16())}
	if v4 := ip.To4(); v4 != nil {
		family, protocol, to = unix.AF_INET, unix.IPPROTO_ICMP, &unix.SockaddrInet4{Addr: [4]byte(v4)}
	} else {
		request[0] = 128 // the kernel computes the checksum
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, protocol)
	if err != nil {
		return 2, err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(int64(silence))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return 2, err
	}
	if err := unix.Connect(fd, to); err != nil {
		return 2, err
	}
	if _, err := unix.Write(fd, request); err != nil {
		return 2, err
	}
	how := "answer"
	if _, err := unix.Read(fd, make([]byte, 256)); err != nil {
		how = err.Error()
	}
	fmt.Println(how)
	return 0, nil
}

func icmpEcho() []byte {
	b := []byte{8, 0, 0, 0, 0, 1, 0, 1, 'o', 'u', 't', '!'}
	binary.BigEndian.PutUint16(b[2:], checksum(b))
	return b
}

// smuggleRaw sends a datagram whose header, with the source of another machine, the guest writes.
func smuggleRaw(to net.IP) error {
	return sendPacket(unix.SOCK_RAW, unix.IPPROTO_RAW, to, datagram(to, 0, udpPayload()), false)
}

// smuggleFragments sends the two parts of a datagram.
func smuggleFragments(to net.IP) error {
	const more = 0x2000
	if err := sendPacket(unix.SOCK_RAW, unix.IPPROTO_RAW, to, datagram(to, more, udpPayload()[:8]), false); !errors.Is(err, errSilent) {
		return err
	}
	return sendPacket(unix.SOCK_RAW, unix.IPPROTO_RAW, to, datagram(to, 1, udpPayload()[8:]), false)
}

// smuggleFrame sends a packet over the interface itself.
func smuggleFrame(to net.IP) error {
	i, err := net.InterfaceByName("eth0")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const ipv4 = 0x0008 // ETH_P_IP, in the order of the network
	if err := unix.Sendto(fd, datagram(to, 0, udpPayload()), 0, &unix.SockaddrLinklayer{Protocol: ipv4, Ifindex: i.Index, Halen: 6}); err != nil {
		return err
	}
	return errSilent
}

// errSilent says that something was sent and nothing came back.
var errSilent = errors.New("sent, and no answer")

// sendPacket sends a packet over a socket of some kind, and awaits an answer if it is to.
func sendPacket(kind, protocol int, to net.IP, packet []byte, answered bool) error {
	fd, err := unix.Socket(unix.AF_INET, kind, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte(to)}); err != nil {
		return err
	}
	if !answered {
		return errSilent
	}
	limit := unix.NsecToTimeval(int64(silence))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	_, _, err = unix.Recvfrom(fd, make([]byte, 256), 0)
	return err
}

func udpPayload() []byte {
	b := make([]byte, 24)
	binary.BigEndian.PutUint16(b, 1000)
	binary.BigEndian.PutUint16(b[2:], 9)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	return b
}

// datagram returns a packet of UDP with a header of IPv4 whose source is another machine.
func datagram(to net.IP, fragment uint16, payload []byte) []byte {
	b := make([]byte, 20, 20+len(payload))
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(b[2:], uint16(20+len(payload)))
	binary.BigEndian.PutUint16(b[4:], 77)
	binary.BigEndian.PutUint16(b[6:], fragment)
	copy(b[12:], []byte{203, 0, 113, 77})
	copy(b[16:], to)
	binary.BigEndian.PutUint16(b[10:], checksum(b))
	return append(b, payload...)
}

// checksum is that of the Internet (RFC 1071).
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// flood connects many times, with many at once, and prints how that ended.
func flood(addr, count string) (int, error) {
	n, err := strconv.Atoi(count)
	if err != nil {
		return 2, err
	}
	const atOnce = 64
	var left, connected, refused, other atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				c, err := net.Dial("tcp", addr)
				switch {
				case err == nil:
					connected.Add(1)
					c.Close()
				case errors.Is(err, syscall.ECONNREFUSED):
					refused.Add(1)
				default:
					other.Add(1)
				}
			}
		})
	}
	wg.Wait()
	fmt.Println("connected", connected.Load(), "refused", refused.Load(), "other", other.Load())
	return 0, nil
}
