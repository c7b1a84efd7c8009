package policy

import (
	"math/bits"
	"net/netip"
)

// class is a set of kinds of addresses that are not reached unless a rule names them. An address
// may be of several.
type class uint16

const (
	private class = 1 << iota
	loopback
	linkLocal
	metadata
	multicast
	broadcast
	unspecified
	reserved
	translated
	ownHost
)

// special are the ranges that only a rule for addresses within them names. The private ranges may
// also be named by a rule with private: true. Ranges are of the IANA registries of special-purpose
// addresses; metadata addresses are those of the documentation of the clouds.
var special = []struct {
	prefix netip.Prefix
	class  class
}{
	{netip.MustParsePrefix("10.0.0.0/8"), private},
	{netip.MustParsePrefix("172.16.0.0/12"), private},
	{netip.MustParsePrefix("192.168.0.0/16"), private},
	{netip.MustParsePrefix("100.64.0.0/10"), private}, // shared by customers of a provider, RFC 6598
	{netip.MustParsePrefix("192.0.0.0/24"), private},  // protocol assignments, RFC 6890
	{netip.MustParsePrefix("198.18.0.0/15"), private}, // benchmarks, RFC 2544
	{netip.MustParsePrefix("fc00::/7"), private},
	{netip.MustParsePrefix("fec0::/10"), private}, // site-local, RFC 3879
	{netip.MustParsePrefix("127.0.0.0/8"), loopback},
	{netip.MustParsePrefix("::1/128"), loopback},
	{netip.MustParsePrefix("169.254.0.0/16"), linkLocal},
	{netip.MustParsePrefix("fe80::/10"), linkLocal},
	{netip.MustParsePrefix("169.254.169.254/32"), metadata}, // most clouds
	{netip.MustParsePrefix("169.254.170.2/32"), metadata},   // credentials of containers
	{netip.MustParsePrefix("169.254.170.23/32"), metadata},  // credentials of pods
	{netip.MustParsePrefix("fd00:ec2::254/128"), metadata},
	{netip.MustParsePrefix("fd00:ec2::23/128"), metadata},
	{netip.MustParsePrefix("fd20:ce::254/128"), metadata},
	{netip.MustParsePrefix("100.100.100.200/32"), metadata},
	{netip.MustParsePrefix("168.63.129.16/32"), metadata},
	{netip.MustParsePrefix("192.0.0.192/32"), metadata},
	{netip.MustParsePrefix("224.0.0.0/4"), multicast},
	{netip.MustParsePrefix("ff00::/8"), multicast},
	{netip.MustParsePrefix("255.255.255.255/32"), broadcast},
	{netip.MustParsePrefix("0.0.0.0/8"), unspecified}, // Linux connects 0.0.0.0 to itself
	{netip.MustParsePrefix("::/128"), unspecified},
	{netip.MustParsePrefix("240.0.0.0/4"), reserved},
	{netip.MustParsePrefix("64:ff9b:1::/48"), translated}, // RFC 8215: how it embeds IPv4 is a local matter
}

// classRules are the decisions about addresses that no rule names, by class.
var classRules = [...]*rule{
	{text: "private addresses: no rule names them"},
	{text: "loopback: no rule names it"},
	{text: "link-local addresses: no rule names them"},
	{text: "cloud metadata: no rule names it"},
	{text: "multicast: no rule names it"},
	{text: "broadcast: no rule names it"},
	{text: "unspecified address: no rule names it"},
	{text: "reserved addresses: no rule names them"},
	{text: "locally translated and tunnel addresses: no rule names them"},
	{text: "address of the host: no rule names it"},
}

// rule returns the decision about an address of classes c that no rule names. Of several classes
// the last is told, which says more: metadata rather than link-local.
func (c class) rule() *rule { return classRules[bits.Len16(uint16(c))-1] }

// specialByFirst has, by the first byte of an address, which of the special ranges it may be in:
// most addresses are in none.
var specialByFirst = func() (ranges [2][256][]int) {
	for i := range special {
		addr, bits := special[i].prefix.Addr(), special[i].prefix.Bits()
		first := int(addr.AsSlice()[0])
		for n := range 1 << max(0, 8-bits) {
			at := &ranges[family(addr)][first+n]
			*at = append(*at, i)
		}
	}
	return ranges
}()

// family returns 0 for IPv4 and 1 for IPv6.
func family(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}

// classesOf returns the classes of a canonical address, without ownHost.
func classesOf(addr netip.Addr) class {
	first := addr.As16()[0]
	if addr.Is4() {
		first = addr.As4()[0]
	}
	var c class
	for _, i := range specialByFirst[family(addr)][first] {
		if special[i].prefix.Contains(addr) {
			c |= special[i].class
		}
	}
	if v4, ok := tunnelled(addr); ok {
		if c |= classesOf(v4); c == 0 {
			c = translated
		}
	}
	return c
}

// classesNamed returns the classes that a rule for the addresses of prefix names: those whose
// ranges hold all of them. A single address names its host.
func classesNamed(prefix netip.Prefix) class {
	var c class
	for i := range special {
		if s := special[i].prefix; s.Bits() <= prefix.Bits() && s.Contains(prefix.Addr()) {
			c |= special[i].class
		}
	}
	if v4, ok := tunnelled(prefix.Addr()); ok {
		c |= translated
		switch {
		case prefix.IsSingleIP():
			c |= classesOf(v4)
		case sixToFour.Contains(prefix.Addr()) && prefix.Bits() >= sixToFour.Bits():
			c |= classesNamed(netip.PrefixFrom(v4, min(32, prefix.Bits()-sixToFour.Bits())))
		}
	}
	if prefix.IsSingleIP() {
		c |= ownHost
	}
	return c
}

// embeddings are the ranges of IPv6 addresses that have an IPv4 address in them, with the first of
// its four bytes.
var embeddings = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("::ffff:0:0/96"), 12},   // mapped, RFC 4291
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // translated, RFC 2765
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64, RFC 6052
}

// The ranges of tunnels have an IPv4 address in them, which is that of a router or a client, and not of the host that is
// reached: a rule for the IPv4 address does not name them. They need a rule of their own, that names what the IPv4
// address is as well.
var (
	sixToFour = netip.MustParsePrefix("2002::/16") // RFC 3056
	teredo    = netip.MustParsePrefix("2001::/32") // RFC 4380
)

// tunnelled returns the IPv4 address of the far end of a tunnel.
func tunnelled(addr netip.Addr) (v4 netip.Addr, ok bool) {
	switch b := addr.As16(); {
	case !addr.Is6():
		return v4, false
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:])), true
	case teredo.Contains(addr):
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	}
	return v4, false
}

// compatible is the deprecated range of IPv6 addresses that are an IPv4 address behind zeros. The
// unspecified address and that of the loopback are in it, and are addresses of IPv6.
var compatible = netip.MustParsePrefix("::/96")

// canonicalAddress returns the address that is judged in place of addr: without a zone, and the
// IPv4 address if there is one in it.
func canonicalAddress(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if !addr.Is6() {
		return addr
	}
	b := addr.As16()
	for _, e := range embeddings {
		if !e.prefix.Contains(addr) {
			continue
		}
		return netip.AddrFrom4([4]byte(b[e.at:]))
	}
	if compatible.Contains(addr) && !addr.IsUnspecified() && !addr.IsLoopback() {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}

// embeds reports whether all addresses of prefix are judged as IPv4 addresses, so that a rule for
// them would never match.
func embeds(prefix netip.Prefix) bool {
	addr := prefix.Addr()
	if addr.Is4() {
		return false
	}
	if addr.Is4In6() {
		return true
	}
	for _, e := range embeddings {
		if e.prefix.Bits() <= prefix.Bits() && e.prefix.Contains(addr) {
			return true
		}
	}
	return compatible.Bits() <= prefix.Bits() && compatible.Contains(addr) && canonicalAddress(addr) != addr
}
