package network

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/test/harness"
)

// inside is set in the environment of tests that run in their namespace.
const inside = "RAMET_TEST_NETNS"

func TestMain(m *testing.M) {
	tests := len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-test.")
	if tests && os.Getenv(inside) == "" && !prepared() {
		os.Exit(enter())
	}
	if tests && !prepared() {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "prepare the network namespace:", err)
			os.Exit(1)
		}
	}
	os.Exit(harness.Main(m, harness.Suite{}))
}

func TestOrdinaryUser(t *testing.T) {
	if _, err := talker(); err != nil { // the ordinary user's tests are not where its source is
		t.Fatal(err)
	}
	harness.AsOrdinaryUser(t)
}

// enter runs the tests in a namespace, and returns their exit code.
func enter() int {
	if err := harness.MakeDatabases(); err != nil { // no mirror is reached inside
		fmt.Fprintln(os.Stderr, "the image with databases cannot be made:", err)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
	}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "enter a network namespace:", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// own is the address of the host in the namespace, besides those of loopback.
var own = netip.MustParseAddr("192.0.2.254")

// local are the ranges whose addresses are all local to the namespace.
var local = []string{"198.51.100.0/24", "203.0.113.0/24", "10.77.0.0/16", "169.254.169.254/32", "2001:db8:1::/48"}

// prepared reports whether this is a namespace for tests.
func prepared() bool {
	addrs, err := net.InterfaceAddrs()
	for _, a := range addrs {
		if strings.HasPrefix(a.String(), own.String()+"/") {
			return err == nil
		}
	}
	return false
}

// prepare makes an empty namespace one for tests.
func prepare() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(own.String() + "/32")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(lo, addr); err != nil {
		return err
	}
	for _, text := range local {
		_, dst, err := net.ParseCIDR(text)
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("route to %s: %w", text, err)
		}
	}
	// What needs a privilege elsewhere: low ports, and echoes of the gateway. The namespace of an ordinary
	// user has its own group alone.
	groups := "0 65534"
	if gid := os.Getgid(); os.Getuid() != 0 {
		groups = fmt.Sprint(gid, " ", gid)
	}
	for file, value := range map[string]string{"ip_unprivileged_port_start": "0", "ping_group_range": groups} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+file, []byte(value), 0); err != nil {
			return err
		}
	}
	return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
}

// data is what servers send.
var data = func() []byte {
	b := make([]byte, 16<<20)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b) // it never fails
	return b
}()
