package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ownLoopback talks to itself in a network namespace that has nothing but lo.
func ownLoopback() (func() error, error) {
	// As bubblewrap does: lo has no address in a new namespace of Linux.
	if err := addAddress(1, netip.MustParsePrefix("127.0.0.1/8")); err != nil {
		return nil, err
	}
	talk, err := newTalk(netip.MustParseAddr("127.0.0.1"), direct, direct)
	if err != nil {
		return nil, err
	}
	return func() error {
		all, err := net.Interfaces()
		if err != nil {
			return err
		}
		if len(all) != 1 || all[0].Name != "lo" {
			return fmt.Errorf("the namespace has the interfaces %v", all)
		}
		return talk()
	}, nil
}

// interfaces makes a pair of interfaces, a bridge with a port, and addresses.
func interfaces() (func() error, error) {
	if err := makeLink("veth", "va", "vb", 0); err != nil {
		return nil, err
	}
	if err := makeLink("bridge", "br0", "", 0); err != nil {
		return nil, err
	}
	ids := map[string]int{}
	for _, name := range []string{"lo", "va", "vb", "br0"} {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return nil, err
		}
		ids[name] = i.Index
	}
	if err := setMaster(ids["vb"], ids["br0"]); err != nil {
		return nil, err
	}
	for name, address := range map[string]string{"va": "10.77.0.1/24", "lo": "10.78.0.1/32"} {
		if err := addAddress(ids[name], netip.MustParsePrefix(address)); err != nil {
			return nil, err
		}
	}
	want, err := shownInterfaces()
	if err != nil {
		return nil, err
	}
	if !strings.Contains(want, "10.77.0.1/24") || strings.Count(want, "\n") != 4 {
		return nil, fmt.Errorf("the interfaces are %s", want)
	}
	talk, err := newTalk(netip.MustParseAddr("10.77.0.1"), direct, direct)
	if err != nil {
		return nil, err
	}
	return func() error {
		got, err := shownInterfaces()
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("the interfaces are %s, not %s", got, want)
		}
		return talk()
	}, nil
}

// shownInterfaces returns all that programs see of interfaces but their state.
func shownInterfaces() (string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, i := range all {
		addresses, err := i.Addrs()
		if err != nil {
			return "", err
		}
		var texts []string
		for _, a := range addresses {
			texts = append(texts, a.String())
		}
		slices.Sort(texts)
		fmt.Fprintln(&b, i.Index, i.Name, i.MTU, i.HardwareAddr, texts)
	}
	return b.String(), nil
}

// pairOfNamespaces connects two network namespaces with a pair of interfaces.
func pairOfNamespaces() (func() error, error) {
	here, there := inNamespace(), inNamespace()
	var fd int
	steps := []struct {
		in func(func() error) error
		do func() error
	}{
		{here, nil}, {there, nil},
		{there, func() (err error) {
			fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			return err
		}},
		{here, func() error { return makeLink("veth", "near", "far", fd) }},
		{here, func() error { return giveAddress("near", "10.79.0.1/24") }},
		{there, func() error { return giveAddress("far", "10.79.0.2/24") }},
	}
	for _, s := range steps {
		if err := s.in(s.do); err != nil {
			return nil, err
		}
	}
	return newTalk(netip.MustParseAddr("10.79.0.2"), here, there)
}

func giveAddress(name, address string) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	return addAddress(i.Index, netip.MustParsePrefix(address))
}

func direct(do func() error) error { return do() }

// inNamespace returns a function that calls another one in a network namespace of its own. With nil it says whether
// the namespace was made.
func inNamespace() func(do func() error) error {
	calls, results := make(chan func() error), make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		for do := range calls {
			if err == nil && do != nil {
				results <- do()
			} else {
				results <- err
			}
		}
	}()
	return func(do func() error) error {
		calls <- do
		return <-results
	}
}

// newTalk connects a client in one namespace with a server at an address of another one. The function that it returns
// says something by that connection, and by a new one.
func newTalk(address netip.Addr, client, server func(func() error) error) (func() error, error) {
	var l *net.TCPListener
	err := server(func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, 0)))
		return err
	})
	if err != nil {
		return nil, err
	}
	dial := func() (near, far net.Conn, err error) {
		err = client(func() (err error) {
			near, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		far, err = l.Accept()
		return near, far, err
	}
	near, far, err := dial()
	if err != nil {
		return nil, err
	}
	return func() error {
		if err := sayBoth(near, far); err != nil {
			return fmt.Errorf("the old connection: %w", err)
		}
		near, far, err := dial()
		if err != nil {
			return fmt.Errorf("a new connection: %w", err)
		}
		defer near.Close()
		defer far.Close()
		return sayBoth(near, far)
	}, nil
}

// sayBoth sends a text both ways.
func sayBoth(a, b net.Conn) error {
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		const text = "what is said"
		if err := way[1].SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		if _, err := io.WriteString(way[0], text); err != nil {
			return err
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(way[1], got); err != nil {
			return err
		}
		if string(got) != text {
			return fmt.Errorf("%q was said, not %q", got, text)
		}
	}
	return nil
}
