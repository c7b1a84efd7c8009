package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// attribute encodes an attribute of a message of rtnetlink.
func attribute(kind uint16, payload ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(payload)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), payload...)
	return append(b, make([]byte, -len(b)&3)...)
}

func joined(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// makeLink makes an interface of a kind in the namespace of the calling thread. peer is the name of the other end of
// a veth, in the namespace of the descriptor if that is not 0.
func makeLink(kind, name, peer string, namespace int) error {
	info := attribute(unix.IFLA_INFO_KIND, []byte(kind)...)
	if peer != "" {
		p := joined(make([]byte, unix.SizeofIfInfomsg), attribute(unix.IFLA_IFNAME, append([]byte(peer), 0)...))
		if namespace != 0 {
			p = append(p, attribute(unix.IFLA_NET_NS_FD, binary.NativeEndian.AppendUint32(nil, uint32(namespace))...)...)
		}
		const vethPeer = 1
		info = append(info, attribute(unix.IFLA_INFO_DATA, attribute(vethPeer, p...)...)...)
	}
	body := joined(make([]byte, unix.SizeofIfInfomsg), attribute(unix.IFLA_IFNAME, append([]byte(name), 0)...), attribute(unix.IFLA_LINKINFO, info...))
	return askNetlink(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, body)
}

// setMaster makes an interface a port of a bridge.
func setMaster(port, bridge int) error {
	body := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(body[4:], uint32(port))
	return askNetlink(unix.RTM_SETLINK, 0, append(body, attribute(unix.IFLA_MASTER, binary.NativeEndian.AppendUint32(nil, uint32(bridge))...)...))
}

// addAddress gives an interface an address of IPv4.
func addAddress(id int, p netip.Prefix) error {
	body := make([]byte, unix.SizeofIfAddrmsg)
	body[0], body[1] = unix.AF_INET, byte(p.Bits())
	binary.NativeEndian.PutUint32(body[4:], uint32(id))
	a := p.Addr().AsSlice()
	return askNetlink(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, joined(body, attribute(unix.IFA_LOCAL, a...), attribute(unix.IFA_ADDRESS, a...)))
}

// askNetlink sends a request and waits for its acknowledgement.
func askNetlink(kind, flags uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	m = append(append(m, make([]byte, 8)...), body...)
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("netlink answers with %d bytes: % x", n, b[:n])
	}
	if code := int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
